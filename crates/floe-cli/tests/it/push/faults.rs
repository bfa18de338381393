//! Pushes that meet faults, end early, or run beside each other: a reader never finds a path
//! without its NAR, and the next push completes the cache.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use floe_format::{NarInfo, StoreDir};
use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::{Corpus, S3Server, XorShift, corpus, run, s3_server, scratch};

use super::{assert_installs, floe_with_keys, source_root};

/// A push with short pauses between its attempts.
pub(super) fn push(server: &S3Server, endpoint: &str, corpus: &Corpus, more: &[&str]) -> Command {
    let to = format!("s3://team?endpoint={endpoint}&retry-delay=1&retry-delay-rate-limited=1");
    let root = source_root(corpus);
    let mut command = floe_with_keys(server, &["push", "--to", &to, "--root", &root]);
    command.args(more).arg(&corpus.root);
    command
}

/// Asserts that each narinfo in a bucket has its NAR, and returns their number.
#[track_caller]
pub(super) fn check_bucket(bucket: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(bucket).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|it| it != "narinfo") {
            continue;
        }
        // The server replaces a file by another one.
        let Ok(text) = fs::read(&file) else { continue };
        let narinfo = NarInfo::parse(&text, &StoreDir::default()).unwrap();
        let len = fs::metadata(bucket.join(&narinfo.url)).map(|nar| nar.len());
        assert_eq!(len.ok(), narinfo.file_size, "{}", narinfo.url);
        count += 1;
    }
    count
}

/// Checks a bucket again and again while `work` runs. Returns how often.
fn while_reading(bucket: &Path, work: impl FnOnce()) -> usize {
    let (is_done, checks) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                check_bucket(bucket);
                checks.fetch_add(1, Ordering::Relaxed);
            }
        });
        work();
        is_done.store(true, Ordering::Relaxed);
    });
    checks.into_inner()
}

pub(super) fn completes(server: &S3Server, corpus: &Corpus) {
    run(&mut push(server, &server.endpoint(), corpus, &[])).expect(0);
    let count = check_bucket(&server.bucket("team"));
    assert_eq!(count, corpus.paths.len());
    let scratch = scratch();
    let uri = server.uri("team");
    let args = ["install", "--no-check-sigs", "--from", &uri];
    assert_installs(
        &mut floe_with_keys(server, &args),
        &scratch.join("root"),
        corpus,
    );
}

fn random_fault(seed: u64, number: usize) -> ProxyFault {
    let mut random = XorShift(seed * 1000 + number as u64 + 1);
    random.below(1000);
    match random.below(100) {
        0..15 => ProxyFault::StatusBefore(503),
        15..25 => ProxyFault::StatusAfter(503),
        25..30 => ProxyFault::StatusBefore(429),
        30..35 => ProxyFault::CutRequest(random.below(100_000)),
        35..40 => ProxyFault::CutResponse(random.below(500)),
        40..43 => ProxyFault::Slow(Duration::from_millis(50)),
        _ => ProxyFault::None,
    }
}

#[test]
fn push_survives_a_third_of_broken_requests() {
    let Some(corpus) = corpus("curl") else { return };
    let seeds = if std::env::var_os("FLOE_TEST_FULL").is_some() {
        10
    } else {
        3
    };
    for seed in 1..=seeds {
        let Some(server) = s3_server("team") else {
            return;
        };
        let proxy = FaultProxy::start(server.address(), move |number, _| {
            random_fault(seed, number)
        });
        let bucket = server.bucket("team");
        let checks = while_reading(&bucket, || {
            let output = run(&mut push(&server, &proxy.url(), &corpus, &[]));
            // With five attempts, one request of a hundred still fails.
            let is_explained = output.stderr.contains("cannot ");
            assert!(output.code == Some(0) || is_explained, "{}", output.stderr);
        });
        let (faults, requests) = (proxy.fault_count(), proxy.request_count());
        assert!(
            faults * 100 > requests * 25 && faults > 20,
            "{faults} of {requests}"
        );
        assert!(checks > 0);
        completes(&server, &corpus);
    }
}

#[test]
fn altered_replies_do_not_make_an_incomplete_cache() {
    let Some(corpus) = corpus("curl") else { return };
    for (what, fault) in [
        // A list that ends early: the push writes again what it does not know.
        ("list-type=2", ProxyFault::Replace("<Key>", "<Kay>")),
        (
            "nix-cache-info",
            ProxyFault::Replace("StoreDir", "StoreDor"),
        ),
    ] {
        let Some(server) = s3_server("team") else {
            return;
        };
        run(&mut push(&server, &server.endpoint(), &corpus, &[])).expect(0);
        let proxy = FaultProxy::start(server.address(), move |_, line| {
            if line.starts_with("GET") && line.contains(what) {
                fault.clone()
            } else {
                ProxyFault::None
            }
        });
        run(&mut push(&server, &proxy.url(), &corpus, &[]));
        assert!(proxy.fault_count() > 0, "{what}: no request had the fault");
        completes(&server, &corpus);
    }
}

/// The server checks the time in a signature.
#[test]
fn wrong_clock_is_named() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let Some(faketime) = floe_testkit::find_tool("faketime", "faketime") else {
        return;
    };
    let skewed = push(&server, &server.endpoint(), &corpus, &[]);
    let mut command = Command::new(faketime);
    command
        .args(["-f", "-2h"])
        .arg(skewed.get_program())
        .args(skewed.get_args());
    for (name, value) in skewed.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    run(&mut command)
        .expect(4)
        .stderr_contains("RequestTimeTooSkewed");
}

#[test]
fn killed_pushes_are_completed_by_the_next_one() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let kills = if std::env::var_os("FLOE_TEST_FULL").is_some() {
        30
    } else {
        8
    };
    let bucket = server.bucket("team");
    let mut hit = 0;
    for number in 0..kills {
        fs::remove_dir_all(&bucket).unwrap();
        fs::create_dir(&bucket).unwrap();
        let before = server.request_count();
        let mut command = push(&server, &server.endpoint(), &corpus, &["--jobs", "1"]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // A push makes a NAR and a narinfo for each path.
        let until = before + 1 + (2 * corpus.paths.len() * number) / kills;
        crate::kill::wait_for(&mut child, || server.request_count() > until);
        hit += usize::from(crate::kill::kill(child));
        check_bucket(&bucket);
        run(&mut push(&server, &server.endpoint(), &corpus, &[])).expect(0);
        assert_eq!(check_bucket(&bucket), corpus.paths.len());
    }
    assert!(hit * 4 >= kills * 3, "only {hit} of {kills} kills hit");
    completes(&server, &corpus);
}

#[test]
fn concurrent_pushes_of_overlapping_closures_complete() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let checks = while_reading(&server.bucket("team"), || {
        thread::scope(|scope| {
            for jobs in ["1", "2", "3"] {
                let (server, corpus) = (&server, &corpus);
                scope.spawn(move || {
                    let mut command = push(server, &server.endpoint(), corpus, &["--jobs", jobs]);
                    run(&mut command).expect(0);
                });
            }
        });
    });
    assert!(checks > 0);
    completes(&server, &corpus);
}
