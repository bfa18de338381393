//! Runs that are killed at any instant: the store stays valid, the next run keeps what was finished
//! and clears what was not.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::faulty::assert_holds_exactly;
use crate::support::{Corpus, corpus, floe, run, scratch};

fn install(corpus: &Corpus, root: &Path) -> Command {
    let mut command = floe(["install", "--json", "--from", &corpus.file_url("xz")]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root).arg(&corpus.root);
    command
}

/// Names in the store that no valid path has.
fn unfinished(root: &Path) -> usize {
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
fn valid_paths(root: &Path) -> u64 {
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

#[test]
fn a_killed_run_leaves_a_valid_store_that_the_next_one_completes() {
    let Some(corpus) = corpus("curl") else { return };
    let kills = match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 200,
        None => 20,
    };
    let scratch = scratch();
    let paths: BTreeSet<String> = corpus.paths.iter().cloned().collect();
    let began = Instant::now();
    run(&mut install(&corpus, &scratch.join("whole"))).expect(0);
    // How late a kill may come: less when a run has ended before it, and a little more when none
    // has, so that about one in five does, and kills come to all parts of a run.
    let mut whole = began.elapsed();

    let (mut killed, mut with_leftovers, mut kept, mut number) = (0, 0, 0, 0);
    while killed < kills {
        number += 1;
        assert!(number <= 4 * kills, "the runs end before they are killed");
        let root = scratch.join(&format!("root-{number}"));
        // A few kills in a row, each of the run that takes up what the one before has left.
        for _ in 0..4 {
            let before = valid_paths(&root);
            let mut command = install(&corpus, &root);
            // Every other store has links that a kill may come between.
            command.args((number % 2 == 0).then_some("--optimise"));
            let mut child = command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(part_of(whole));
            child.kill().unwrap();
            if child.wait().unwrap().signal() != Some(9) {
                whole = whole.mul_f64(0.9);
                break;
            }
            whole = whole.mul_f64(1.03);
            killed += 1;
            with_leftovers += usize::from(unfinished(&root) > 0);
            let after = valid_paths(&root);
            assert!(after >= before, "{before} valid paths became {after}");
        }
        let valid = valid_paths(&root);
        kept += valid;
        let result = run(&mut install(&corpus, &root)).expect(0).json();
        assert_eq!(result["reused"], valid, "finished paths were fetched again");
        assert_eq!(result["fetched"], paths.len() as u64 - valid);
        assert_eq!(unfinished(&root), 0, "leftovers of the dead");
        if number <= 2 {
            assert_holds_exactly(&root, &paths);
        }
        floe_store::tree::write::remove_tree(&root).unwrap();
    }
    assert!(with_leftovers > 0, "no kill came in the middle of a path");
    assert!(kept > 0, "no kill came after a path was finished");
}
