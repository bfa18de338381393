//! Runs killed at random times. The store stays valid, and the next run keeps complete paths and
//! removes incomplete ones.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{NarInfo, StoreDir};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{Corpus, corpus, run, scratch};
use rusqlite::{Connection, OpenFlags};

use crate::faulty_cache::assert_store_contains_exactly;
use crate::support::floe;

pub(crate) fn install(corpus: &Corpus, from: &str, root: &Path) -> Command {
    let mut command = floe(["install", "--json", "--from", from]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root).arg(&corpus.root);
    command
}

/// Starts the command. Every other run uses `--optimise`, so that kills also hit hard-linking.
fn start(command: &mut Command, number: u64) -> Child {
    command.args(number.is_multiple_of(2).then_some("--optimise"));
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits until the condition is true or the child has ended.
pub(crate) fn wait_for(child: &mut Child, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() && child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < TIMEOUT, "timeout");
        // A finer poll than that of `wait_until`, so that the kill comes early.
        thread::sleep(Duration::from_micros(200));
    }
}

/// Kills the child. Returns whether it was still running.
pub(crate) fn kill(mut child: Child) -> bool {
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

/// Counts staged trees and lock files in the store.
pub(crate) fn temporary_entry_count(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root.join("nix/store")) else {
        return 0;
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains("-floe-") || name.ends_with(".lock"))
        .count()
}

/// Returns a random part of a duration.
fn random_part(time: Duration) -> Duration {
    time.mul_f64((RandomState::new().build_hasher().finish() % 1000) as f64 / 1000.0)
}

/// Verifies a store and returns the number of its valid paths. Returns 0 if there is no database.
pub(crate) fn valid_paths(root: &Path) -> u64 {
    if !root.join("nix/var/nix/db/db.sqlite").exists() {
        return 0;
    }
    let ran = run(floe(["verify", "--json", "--root"]).arg(root));
    // The process was killed while it created the database. The next run completes that.
    if ran.stderr.contains("no such table") {
        return 0;
    }
    ran.expect(0).json()["paths"].as_u64().unwrap()
}

/// Returns the number of registered paths. Returns 0 while there is no database.
fn registered_paths(root: &Path) -> u64 {
    let database = root.join("nix/var/nix/db/db.sqlite");
    let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let rows = "select count(*) from ValidPaths";
    connection
        .and_then(|connection| connection.query_row(rows, (), |row| row.get::<_, u32>(0)))
        .map_or(0, u64::from)
}

pub(crate) fn narinfo(corpus: &Corpus, path: &str) -> NarInfo {
    let path = StoreDir::default().parse(path).unwrap();
    let narinfo = corpus
        .cache("xz")
        .join(format!("{}.narinfo", path.hash_part()));
    NarInfo::parse(&fs::read(narinfo).unwrap(), &StoreDir::default()).unwrap()
}

/// Asserts that the next run completes the store and fetches no valid path again.
fn assert_completes(corpus: &Corpus, from: &str, root: &Path) {
    let valid = valid_paths(root);
    let result = run(&mut install(corpus, from, root)).expect(0).json();
    assert_eq!(
        result["alreadyValid"], valid,
        "a valid path was fetched again"
    );
    assert_eq!(result["copied"], corpus.paths.len() as u64 - valid);
    assert_eq!(
        temporary_entry_count(root),
        0,
        "temporary entries of killed runs remain"
    );
}

/// The number of kills: more in full runs.
fn kill_count() -> u64 {
    match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 200,
        None => 20,
    }
}

#[test]
fn store_after_random_kills_is_valid_and_completable() {
    let Some(corpus) = corpus("curl") else { return };
    let from = corpus.file_url("xz");
    let kills = kill_count();
    let scratch = scratch();
    let paths: BTreeSet<String> = corpus.paths.iter().cloned().collect();
    let began = Instant::now();
    run(&mut install(&corpus, &from, &scratch.join("whole"))).expect(0);
    // Upper bound of the delay before a kill. It shrinks when a run ends before its kill and grows
    // otherwise, so that about one run in five ends first and kills hit every phase.
    let mut delay_max = began.elapsed();

    let (mut killed, mut interrupted_paths, mut number) = (0, 0, 0);
    while killed < kills {
        number += 1;
        assert!(number <= 4 * kills, "too many runs end before their kill");
        let root = scratch.join(&format!("root-{number}"));
        // Kill several runs in a row. Each one continues the store of the previous one.
        for _ in 0..4 {
            let before = valid_paths(&root);
            let mut child = start(&mut install(&corpus, &from, &root), number);
            // In every third store, wait until a path has started, so that slow machines get
            // there, too.
            if number % 3 == 1 {
                wait_for(&mut child, || temporary_entry_count(&root) > 0);
            }
            // The kill comes at a random time.
            thread::sleep(random_part(delay_max));
            if !kill(child) {
                delay_max = delay_max.mul_f64(0.9);
                break;
            }
            delay_max = delay_max.mul_f64(1.03);
            killed += 1;
            interrupted_paths += usize::from(temporary_entry_count(&root) > 0);
            let after = valid_paths(&root);
            assert!(after >= before, "{before} valid paths became {after}");
        }
        assert_completes(&corpus, &from, &root);
        if number <= 2 {
            assert_store_contains_exactly(&root, &paths);
        }
        floe_store::tree::remove_tree(&root).unwrap();
    }
    assert!(interrupted_paths > 0, "no kill interrupted a path");
}

#[test]
fn run_killed_after_registration_keeps_registered_paths() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let paths: BTreeSet<String> = corpus.paths.iter().cloned().collect();
    for number in 1..=kill_count() / 4 {
        let root = scratch.join(&format!("root-{number}"));
        // The root's NAR stalls. No other path needs it, so all others are registered.
        let server = FaultServer::start(&corpus.cache("xz"));
        let last = narinfo(&corpus, &corpus.root);
        server.fail(
            &last.url,
            Fault::Stalled(last.file_size.unwrap() as usize / 2),
        );
        let mut child = start(&mut install(&corpus, &server.url(), &root), number);
        wait_for(&mut child, || registered_paths(&root) > 0);
        // The kill comes at a random time.
        thread::sleep(random_part(KILL_DELAY_MAX));
        assert!(kill(child), "the run ended without the stalled path");
        let valid = valid_paths(&root);
        assert!(
            0 < valid && valid < paths.len() as u64,
            "{valid} valid paths"
        );
        server.clear_faults();
        assert_completes(&corpus, &server.url(), &root);
        assert_store_contains_exactly(&root, &paths);
    }
}

/// Maximum delay between a registration and the kill. Some kills hit the next registration.
const KILL_DELAY_MAX: Duration = Duration::from_millis(300);

/// How long a run may take to reach a condition.
const TIMEOUT: Duration = Duration::from_secs(60);
