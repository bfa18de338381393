//! Collections and optimisations that are killed at random moments.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use floe_testkit::{Corpus, XorShift, corpus, nixes, ran_in_pid_namespace, run, scratch, tree};

use super::{floe_in, gc, names};
use crate::kill::{kill, wait_for};
use crate::support::floe;

/// The number of kills of each test: more in full runs.
fn kills() -> usize {
    match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 30,
        None => 6,
    }
}

fn install(corpus: &Corpus, root: &Path, options: &[&str]) {
    let mut install = floe(["install", "--from", &corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &corpus.key, "--root"]);
    run(install.arg(root).args(options).arg(&corpus.root)).expect(0);
}

/// Starts the command, and kills it once the condition is true and a random delay has passed.
/// Returns whether the command was still running.
fn kill_at(command: &mut Command, random: &mut XorShift, is_reached: impl Fn() -> bool) -> bool {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    wait_for(&mut child, is_reached);
    // The kill comes at a random time.
    thread::sleep(Duration::from_micros(random.below(DELAY_MAX) as u64));
    kill(child)
}

#[test]
fn killed_collection_keeps_what_roots_keep() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    let mut random = XorShift(0x5eed);
    let mut killed = 0;
    for number in 0..kills() {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root, &["--optimise"]);
        let kept = &corpus.paths[number % corpus.paths.len()];
        symlink(kept, root.join("nix/var/nix/gcroots/kept")).unwrap();
        let live = gc(&root, &["--print-live"])
            .expect(0)
            .stdout
            .lines()
            .count();
        // Half of the kills hit the deletion of paths, the others the one of links.
        let directory = root.join(["nix/store", "nix/store/.links"][number % 2]);
        let before = names(&directory).len();
        let left = before - 1 - random.below(before / 2);
        killed += usize::from(kill_at(&mut floe_in(&root, &["gc"]), &mut random, || {
            names(&directory).len() <= left
        }));
        for nix in nixes() {
            // A path has a row and whole contents, or no row.
            nix.verify(&root, live);
        }
        gc(&root, &[]).expect(0);
        let left = names(&root.join("nix/store"));
        assert_eq!(left.len(), live + 1, "the next collection left {left:?}");
        assert_eq!(
            gc(&root, &["--print-live"])
                .expect(0)
                .stdout
                .lines()
                .count(),
            live
        );
        run(&mut floe_in(&root, &["verify"])).expect(0);
    }
    assert!(
        killed * 3 >= kills(),
        "only {killed} collections were killed"
    );
}

#[test]
fn killed_optimisation_changes_no_contents() {
    let Some(corpus) = corpus("curl") else { return };
    let mut random = XorShift(0x5eed);
    let scratch = scratch();
    let whole = scratch.join("whole");
    install(&corpus, &whole, &[]);
    let expected = tree(&whole);
    run(&mut floe_in(&whole, &["optimise"])).expect(0);
    let links = names(&whole.join("nix/store/.links"));
    let mut killed = 0;
    for number in 0..kills() {
        let root = scratch.join(&format!("root-{number}"));
        install(&corpus, &root, &[]);
        let directory = root.join("nix/store/.links");
        let made = random.below(links.len());
        killed += usize::from(kill_at(
            &mut floe_in(&root, &["optimise"]),
            &mut random,
            || names(&directory).len() >= made,
        ));
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
        run(&mut floe_in(&root, &["optimise"])).expect(0);
        assert_eq!(names(&directory), links);
        // The next collection deletes the temporary name of a link.
        symlink(&corpus.root, root.join("nix/var/nix/gcroots/kept")).unwrap();
        gc(&root, &[]).expect(0);
        assert_eq!(tree(&root), expected, "contents, modes or times differ");
    }
    assert!(killed * 3 >= kills(), "only {killed} runs were killed");
}

/// The longest delay before a kill, in microseconds: the time of some hundred further links or
/// removals.
const DELAY_MAX: usize = 3000;
