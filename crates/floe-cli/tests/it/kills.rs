//! Runs that are killed at any instant: the store stays valid, the next run keeps what was finished
//! and clears what was not.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{NarInfo, StoreDir};
use rusqlite::{Connection, OpenFlags};

use crate::faulty::assert_holds_exactly;
use crate::server::{Fault, Server};
use crate::support::{Corpus, corpus, floe, run, scratch};

pub(crate) fn install(corpus: &Corpus, from: &str, root: &Path) -> Command {
    let mut command = floe(["install", "--json", "--from", from]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root).arg(&corpus.root);
    command
}

/// Starts it, with links that a kill may come between for every other store.
fn start(command: &mut Command, number: u64) -> Child {
    command.args(number.is_multiple_of(2).then_some("--optimise"));
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().unwrap()
}

/// Waits until something is so, or the run has ended.
fn wait_for(child: &mut Child, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "it has not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Kills it; whether it had not ended before.
pub(crate) fn kill(mut child: Child) -> bool {
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

/// Names in the store that no valid path has.
pub(crate) fn unfinished(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root.join("nix/store")) else {
        return 0;
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains("-floe-") || name.ends_with(".lock"))
        .count()
}

/// A time up to this, by chance.
fn part_of(time: Duration) -> Duration {
    time.mul_f64((RandomState::new().build_hasher().finish() % 1000) as f64 / 1000.0)
}

/// What a store holds, all of which has to be right; nothing where there is no store yet.
pub(crate) fn valid_paths(root: &Path) -> u64 {
    if !root.join("nix/var/nix/db/db.sqlite").exists() {
        return 0;
    }
    let ran = run(floe(["verify", "--json", "--root"]).arg(root));
    // The database was being made when the process was killed; the next run has to make it.
    if ran.stderr.contains("no such table") {
        return 0;
    }
    ran.expect(0).json()["paths"].as_u64().unwrap()
}

/// How many paths a store that is being written has registered; none while there is no database.
fn registered(root: &Path) -> u64 {
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

/// What the next run makes of a store whose runs were killed.
fn assert_completes(corpus: &Corpus, from: &str, root: &Path) {
    let valid = valid_paths(root);
    let result = run(&mut install(corpus, from, root)).expect(0).json();
    assert_eq!(
        result["alreadyValid"], valid,
        "finished paths were fetched again"
    );
    assert_eq!(result["copied"], corpus.paths.len() as u64 - valid);
    assert_eq!(unfinished(root), 0, "leftovers of the dead");
}

/// Twenty, or as many as a full run has time for.
fn kills_wanted() -> u64 {
    match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 200,
        None => 20,
    }
}

#[test]
fn a_killed_run_leaves_a_valid_store_that_the_next_one_completes() {
    let Some(corpus) = corpus("curl") else { return };
    let from = corpus.file_url("xz");
    let kills = kills_wanted();
    let scratch = scratch();
    let paths: BTreeSet<String> = corpus.paths.iter().cloned().collect();
    let began = Instant::now();
    run(&mut install(&corpus, &from, &scratch.join("whole"))).expect(0);
    // How late a kill may come: less when a run has ended before it, and a little more when none
    // has, so that about one in five does, and kills come to all parts of a run.
    let mut whole = began.elapsed();

    let (mut killed, mut with_leftovers, mut number) = (0, 0, 0);
    while killed < kills {
        number += 1;
        assert!(number <= 4 * kills, "the runs end before they are killed");
        let root = scratch.join(&format!("root-{number}"));
        // A few kills in a row, each of the run that takes up what the one before has left.
        for _ in 0..4 {
            let before = valid_paths(&root);
            let mut child = start(&mut install(&corpus, &from, &root), number);
            // Every third store's runs get as far as a path, however slow the machine has become.
            if number % 3 == 1 {
                wait_for(&mut child, || unfinished(&root) > 0);
            }
            thread::sleep(part_of(whole));
            if !kill(child) {
                whole = whole.mul_f64(0.9);
                break;
            }
            whole = whole.mul_f64(1.03);
            killed += 1;
            with_leftovers += usize::from(unfinished(&root) > 0);
            let after = valid_paths(&root);
            assert!(after >= before, "{before} valid paths became {after}");
        }
        assert_completes(&corpus, &from, &root);
        if number <= 2 {
            assert_holds_exactly(&root, &paths);
        }
        floe_store::tree::remove_tree(&root).unwrap();
    }
    assert!(with_leftovers > 0, "no kill came in the middle of a path");
}

#[test]
fn a_run_that_is_killed_after_a_registration_keeps_what_it_has_registered() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let paths: BTreeSet<String> = corpus.paths.iter().cloned().collect();
    for number in 1..=kills_wanted() / 4 {
        let root = scratch.join(&format!("root-{number}"));
        // What nothing else refers to never comes whole, so that all others are registered.
        let server = Server::start(&corpus.cache("xz"));
        let last = narinfo(&corpus, &corpus.root);
        server.fail(&last.url, Fault::Hang(last.file_size.unwrap() as usize / 2));
        let mut child = start(&mut install(&corpus, &server.url(), &root), number);
        wait_for(&mut child, || registered(&root) > 0);
        thread::sleep(part_of(AFTER));
        assert!(kill(child), "the run ended without the path that hangs");
        let valid = valid_paths(&root);
        assert!(0 < valid && valid < paths.len() as u64, "{valid} are valid");
        server.heal();
        assert_completes(&corpus, &server.url(), &root);
        assert_holds_exactly(&root, &paths);
    }
}

/// So long after a registration a kill may come: some meet the next one.
const AFTER: Duration = Duration::from_millis(300);

/// How long a run may take to get anywhere.
const PATIENCE: Duration = Duration::from_secs(60);
