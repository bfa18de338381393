//! Named pipes, devices and directories in the place of files that floe reads. A named pipe has no
//! writer here, so a program that opens it in the usual way waits without end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use floe_testkit::fault_server::FaultServer;
use floe_testkit::{CommandOutput, Scratch, run, scratch, synthetic_cache};
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::support::floe_with_time_limit;

/// A cache with one path, and a directory for other files.
struct Fixture {
    scratch: Scratch,
    cache: PathBuf,
}

fn fixture() -> Fixture {
    let scratch = scratch();
    let cache = scratch.join("cache");
    synthetic_cache::create(&cache, 1, |_| Vec::new());
    Fixture { scratch, cache }
}

/// Puts something else in the place of a file.
type Put = fn(&Path);

const KINDS: [(&str, Put); 4] = [
    ("pipe", |place| {
        mkfifoat(CWD, place, Mode::from_raw_mode(0o644)).unwrap();
    }),
    ("link to pipe", |place| {
        let pipe = place.with_extension("pipe");
        mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o644)).unwrap();
        symlink(pipe, place).unwrap();
    }),
    ("device", |place| symlink("/dev/zero", place).unwrap()),
    ("directory", |place| fs::create_dir(place).unwrap()),
];

impl Fixture {
    fn narinfo(&self) -> PathBuf {
        let part = synthetic_cache::path(0).hash_part();
        self.cache.join(format!("{part}.narinfo"))
    }

    fn uri(&self) -> String {
        format!("file://{}", self.cache.display())
    }

    fn install(&self, from: &str, options: &[&str]) -> CommandOutput {
        run(
            floe_with_time_limit(["install", "--no-check-sigs", "--from", from, "--root"])
                .arg(self.scratch.join("root"))
                .args(options)
                .arg(synthetic_cache::path(0).as_str()),
        )
    }

    fn copy_to(&self, target: &str) -> CommandOutput {
        run(
            floe_with_time_limit(["copy", "--no-check-sigs", "--from", &self.uri(), "--to"])
                .arg(target)
                .arg(synthetic_cache::path(0).as_str()),
        )
    }
}

fn replace(place: &Path, put: Put) {
    if place.exists() {
        fs::remove_file(place).unwrap();
    }
    put(place);
}

#[track_caller]
fn assert_names(ran: &CommandOutput, place: &Path, context: &str) {
    let said = format!("{}: it is not a regular file", place.display());
    assert!(ran.stderr.contains(&said), "{context}: {}", ran.stderr);
}

#[test]
fn irregular_files_in_a_source_cache_are_errors() {
    for (kind, put) in KINDS {
        let places: [fn(&Fixture) -> PathBuf; 3] = [
            |it| it.cache.join("nix-cache-info"),
            Fixture::narinfo,
            |it| it.cache.join("nar/0.nar"),
        ];
        for place in places {
            let fixture = fixture();
            let place = place(&fixture);
            replace(&place, put);
            let ran = fixture.install(&fixture.uri(), &[]).expect(4);
            assert_names(&ran, &place, kind);
        }
    }
}

#[test]
fn irregular_files_in_a_target_cache_are_errors() {
    for (kind, put) in KINDS {
        let part = synthetic_cache::path(0).hash_part();
        for name in ["nix-cache-info".to_owned(), format!("{part}.narinfo")] {
            let fixture = fixture();
            let target = fixture.scratch.join("target");
            fs::create_dir(&target).unwrap();
            let place = target.join(name);
            put(&place);
            let uri = format!("file://{}", target.display());
            let ran = fixture.copy_to(&uri).expect(4);
            assert_names(&ran, &place, kind);
        }
    }
}

#[test]
fn irregular_key_files_are_errors() {
    let (fixture, store) = (fixture(), scratch());
    fixture.install(&fixture.uri(), &[]).expect(0);
    for (number, (kind, put)) in KINDS.into_iter().enumerate() {
        let key = store.join(&format!("key-{number}"));
        put(&key);
        let target = store.join("target");
        let uri = format!("file://{}?secret-key={}", target.display(), key.display());
        assert_names(&fixture.copy_to(&uri).expect(1), &key, kind);
        let served = run(floe_with_time_limit(["serve", "--listen", "127.0.0.1:0"])
            .arg("--root")
            .arg(fixture.scratch.join("root"))
            .arg("--secret-key-file")
            .arg(&key));
        assert_names(&served, &key, kind);
    }
}

#[test]
fn irregular_netrc_and_certificate_files_are_reported() {
    for (kind, put) in KINDS {
        let fixture = fixture();
        let server = FaultServer::start(&fixture.cache);
        let (netrc, certificates) = (
            fixture.scratch.join("netrc"),
            fixture.scratch.join("certificates"),
        );
        put(&netrc);
        put(&certificates);
        let options = ["--option", "netrc-file", netrc.to_str().unwrap()];
        let ran = fixture.install(&server.url(), &options).expect(0);
        assert_names(&ran, &netrc, kind);
        // Plain HTTP needs no certificates, so the file must only not block.
        let certificates = certificates.to_str().unwrap();
        let options = ["--option", "ssl-cert-file", certificates];
        fixture.install(&server.url(), &options).expect(0);
    }
}
