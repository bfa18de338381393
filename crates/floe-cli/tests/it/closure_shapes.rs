//! Closures of unusual shape: very deep ones, and wide ones in which all paths need the same path.

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use floe_copy::{CopyRequest, RequestedPaths, resolve_store_uri};
use floe_testkit::synthetic_cache::{self, path};
use floe_testkit::{run, scratch};
use floe_transfer::{CopyOptions, Event, EventSink, Events, UriContext};

use crate::faulty_cache::assert_verified;
use crate::support::floe;

#[test]
fn failed_leaf_of_deep_closure_is_reported_without_crash() {
    let scratch = scratch();
    let cache = scratch.join("cache");
    let depth = 20_000;
    synthetic_cache::create(&cache, depth, |number| {
        if number == 0 {
            vec![]
        } else {
            vec![number - 1]
        }
    });
    fs::remove_file(cache.join("nar/0.nar")).unwrap();
    let ran = run(floe(["install", "--no-check-sigs", "--from"])
        .arg(format!("file://{}", cache.display()))
        .arg("--root")
        .arg(scratch.join("root"))
        .arg(path(depth - 1).as_str()))
    .expect(4)
    .stderr_contains("nar/0.nar");
    let message = format!("failed to copy {depth} paths");
    assert!(
        ran.stderr.contains(&message),
        "{}",
        ran.stderr.lines().last().unwrap()
    );
}

#[test]
fn thousand_paths_ready_at_once_do_not_exhaust_descriptors() {
    let scratch = scratch();
    let (cache, root) = (scratch.join("cache"), scratch.join("root"));
    let count = 1000;
    // The last path is the root. All others refer to number 0, which is fetched last.
    synthetic_cache::create(&cache, count, |number| match number {
        0 => vec![],
        999 => (0..999).collect(),
        _ => vec![0],
    });
    let script = "ulimit -n 128; exec \"$@\"";
    run(Command::new("sh")
        .args([
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_floe"),
            "install",
            "--no-check-sigs",
        ])
        .args(["--from", &format!("file://{}", cache.display()), "--root"])
        .arg(&root)
        .arg(path(count - 1).as_str()))
    .expect(0);
    assert_verified(&root, count);
}

#[test]
fn closed_stdout_does_not_change_exit_code() {
    let scratch = scratch();
    let cache = scratch.join("cache");
    synthetic_cache::create(&cache, 1, |_| vec![]);
    let program = env!("CARGO_BIN_EXE_floe");
    let script = "set -o pipefail; \"$@\" | true";
    let missing = "00000000000000000000000000000000-missing";
    for (asked, code) in [
        (vec![path(0).to_string()], 0),
        (vec![path(0).to_string(), missing.into()], 1),
    ] {
        run(Command::new("bash")
            .args([
                "-c",
                script,
                "bash",
                program,
                "install",
                "--no-check-sigs",
                "--from",
            ])
            .arg(format!("file://{}", cache.display()))
            .arg("--root")
            .arg(scratch.join("root"))
            .args(asked))
        .expect(code);
    }
}

/// Deletes path 0 once the copy is planned, as a garbage collector older than Nix 2.36 may.
struct DeletingCollector {
    root: PathBuf,
    taken: AtomicBool,
}

impl EventSink for DeletingCollector {
    fn event(&self, event: Event<'_>) {
        if matches!(event, Event::Planned { .. }) && !self.taken.swap(true, Ordering::SeqCst) {
            let database = self.root.join("nix/var/nix/db/db.sqlite");
            let connection = rusqlite::Connection::open(database).unwrap();
            let row = format!("/nix/store/{}", path(0));
            let rows = connection.execute("delete from ValidPaths where path = ?1", [row]);
            assert_eq!(rows.unwrap(), 1);
            fs::remove_file(self.root.join("nix/store").join(path(0).as_str())).unwrap();
        }
    }
}

#[test]
fn reference_deleted_during_copy_is_fetched_again() {
    let scratch = scratch();
    let (cache, root) = (scratch.join("cache"), scratch.join("root"));
    synthetic_cache::create(&cache, 4, |number| {
        if number == 0 {
            vec![]
        } else {
            vec![number - 1]
        }
    });
    let from = format!("file://{}", cache.display());
    run(
        floe(["install", "--no-check-sigs", "--from", &from, "--root"])
            .arg(&root)
            .arg(path(0).as_str()),
    )
    .expect(0);
    let options = CopyOptions {
        check_signatures: false,
        jobs: Some(NonZeroUsize::MIN),
        ..CopyOptions::default()
    };
    let store = |text: &str| resolve_store_uri(text, &UriContext::default()).unwrap();
    let paths = RequestedPaths::Named(vec![path(3).to_string()]);
    let target = store(&root.display().to_string());
    let collector = Arc::new(DeletingCollector {
        root: root.clone(),
        taken: AtomicBool::new(false),
    });
    let request = CopyRequest {
        options,
        events: Events::new(collector.clone()),
        ..CopyRequest::new(vec![store(&from)], target, paths)
    };
    let outcome = request.open().unwrap().run().unwrap();
    assert!(
        collector.taken.load(Ordering::SeqCst),
        "nothing was deleted"
    );
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(outcome.copied, 4, "the deleted path was not fetched again");
    assert_verified(&root, 4);
}
