//! Frames of a copy as text.
//!
//! `UPDATE_EXPECT=1 cargo test -p floe-cli --bins progress` writes changed frames into this file.

use expect_test::{Expect, expect};

use super::*;

const MIB: u64 = 1024 * 1024;

fn path(number: usize, name: &str) -> StorePath {
    StorePath::parse(&format!("{number:032}-{name}")).unwrap()
}

/// A copy whose events arrive at given times.
#[derive(Default)]
struct Copy {
    progress: Progress,
    now: Duration,
}

impl Copy {
    fn at(&mut self, seconds: f64) -> &mut Copy {
        self.now = Duration::from_secs_f64(seconds);
        self
    }

    fn event(&mut self, event: Event<'_>) -> &mut Copy {
        self.progress.apply(&event, self.now);
        self
    }

    fn fetch(&mut self, path: &StorePath, bytes: u64) -> &mut Copy {
        self.event(Event::Fetched { path, bytes })
    }

    fn unpack(&mut self, path: &StorePath, nar_bytes: i64, is_reused: bool) -> &mut Copy {
        self.event(Event::Progress {
            path,
            nar_bytes,
            is_reused,
        })
    }

    /// Compares the frame with a snapshot, and each line with the width.
    #[track_caller]
    fn check(&self, columns: usize, expected: &Expect) {
        let lines = self.progress.frame(columns, 3, self.now);
        for line in &lines {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
        expected.assert_eq(&lines.join("\n"));
    }
}

/// A copy of 173 paths after four seconds, at 10 MiB/s.
fn half_done() -> Copy {
    let mut copy = Copy::default();
    let (large, small) = (
        path(1, "firefox-esr-128.14.0esr-1"),
        path(2, "libllvm15-15.0.6-with-a-rather-long-name-indeed"),
    );
    copy.event(Event::Planned {
        paths: 173,
        nar_bytes: 596 * MIB,
        download_bytes: 195 * MIB,
    });
    for (path, nar_size) in [(&small, 108 * MIB), (&large, 240 * MIB)] {
        copy.event(Event::Started {
            path,
            nar_size,
            source: "",
        });
    }
    for number in 0..80 {
        let staged = path(100 + number, "x");
        copy.event(Event::Staged { path: &staged });
    }
    for tenths in 1..=40 {
        copy.at(f64::from(tenths) / 10.0).fetch(&large, MIB);
        copy.unpack(&large, 2 * MIB as i64, false);
        copy.unpack(&small, MIB as i64, false);
    }
    copy
}

#[test]
fn frames_fit_every_width() {
    let copy = half_done();
    copy.check(
        50,
        &expect![[r#"
        20 %  80/173 paths received  16 s left  10 MiB/s
           33 %  80/240 MiB  firefox-esr-128.14.0esr-1
           37 %  40/108 MiB  libllvm15-15.0.6-with-a-rath…"#]],
    );
    copy.check(
        60,
        &expect![[r#"
        20 %  80/173 paths received  16 s left  10 MiB/s
           33 %  80/240 MiB  firefox-esr-128.14.0esr-1
           37 %  40/108 MiB  libllvm15-15.0.6-with-a-rather-long-na…"#]],
    );
    copy.check(
        80,
        &expect![[r#"
        20 %  80/173 paths received  16 s left  10 MiB/s  40/195 MiB fetched
           33 %  80/240 MiB  firefox-esr-128.14.0esr-1
           37 %  40/108 MiB  libllvm15-15.0.6-with-a-rather-long-name-indeed"#]],
    );
    let wide = &copy.progress.frame(200, 3, copy.now)[0];
    let parts: Vec<&str> = wide.split("  ").collect();
    let expected = [
        "20 %",
        "80/173 paths received",
        "16 s left",
        "10 MiB/s",
        "40/195 MiB fetched",
        "120/596 MiB unpacked",
    ];
    assert_eq!(parts[..6], expected);
    assert!(parts[6].starts_with("[#####"), "{wide}");
    for columns in 0..250 {
        for line in copy.progress.frame(columns, 3, copy.now) {
            assert!(line.chars().count() <= columns.max(1), "{columns}: {line}");
        }
    }
}

#[test]
fn log_line_has_all_parts() {
    let copy = half_done();
    expect![
        "20 %, 80/173 paths received, 16 s left, 10 MiB/s, 40/195 MiB fetched, 120/596 MiB unpacked"
    ]
    .assert_eq(&copy.progress.text(copy.now));
}

#[test]
fn resolving_shows_queries_and_early_bodies() {
    let mut copy = Copy::default();
    copy.event(Event::Resolving {
        known: 37,
        pending: 12,
    });
    copy.check(
        80,
        &expect!["resolving: 37 missing paths, 12 queries in flight"],
    );
    copy.fetch(&path(1, "x"), 3 * MIB);
    copy.check(
        80,
        &expect!["resolving: 37 missing paths, 12 queries in flight, 3.0 MiB fetched"],
    );
    copy.check(30, &expect!["resolving: 37 missing paths, …"]);
}

#[test]
fn received_paths_count_before_their_registration() {
    let mut copy = Copy::default();
    let only = path(1, "x");
    copy.event(Event::Planned {
        paths: 1,
        nar_bytes: MIB,
        download_bytes: 0,
    });
    copy.event(Event::Started {
        path: &only,
        nar_size: MIB,
        source: "",
    });
    copy.at(2.0).unpack(&only, MIB as i64, false);
    copy.event(Event::Staged { path: &only });
    copy.check(
        80,
        &expect![
            "100 %  1/1 path received  registering  1.0/1.0 MiB unpacked  [#################]"
        ],
    );
}

#[test]
fn reused_bytes_count_neither_for_the_rate_nor_for_the_rest() {
    let mut copy = Copy::default();
    let only = path(1, "x");
    copy.event(Event::Planned {
        paths: 1,
        nar_bytes: 100 * MIB,
        download_bytes: 0,
    });
    copy.at(1.0).unpack(&only, 60 * MIB as i64, true);
    copy.unpack(&only, -10 * MIB as i64, true);
    let amounts = |copy: &Copy| copy.progress.amounts(copy.now).unwrap();
    assert_eq!(amounts(&copy).unpacked, (0, 50 * MIB));
    assert_eq!(amounts(&copy).rest, None);
    copy.at(2.0).unpack(&only, 10 * MIB as i64, false);
    assert_eq!(amounts(&copy).unpacked, (10 * MIB, 50 * MIB));
    let rest = amounts(&copy).rest.unwrap().as_secs_f64();
    assert!((1.0..10.0).contains(&rest), "{rest}");
}

#[test]
fn rest_settles_at_a_steady_rate() {
    let copy = half_done();
    // 476 MiB are left, at 30 MiB/s.
    let rest = copy.progress.amounts(copy.now).unwrap().rest.unwrap();
    assert!((14.0..18.0).contains(&rest.as_secs_f64()), "{rest:?}");
}
