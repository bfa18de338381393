//! Collections and optimisations that are killed at random moments.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::{Corpus, XorShift, corpus, nixes, run, scratch, tree};

use super::{floe_in, gc, names};
use crate::kill::kill;
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

/// Starts the command and kills it after a part of `whole`. Returns whether it was still running.
fn kill_after(command: &mut Command, delay: Duration) -> bool {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.spawn().unwrap();
    thread::sleep(delay);
    kill(child)
}

#[test]
fn killed_collection_keeps_what_roots_keep() {
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
        let delay = Duration::from_micros(3000 + random.below(60_000) as u64);
        killed += usize::from(kill_after(&mut floe_in(&root, &["gc"]), delay));
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
        killed > kills() / 3,
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
    let began = Instant::now();
    run(&mut floe_in(&whole, &["optimise"])).expect(0);
    let time = began.elapsed().as_micros() as usize;
    let links = names(&whole.join("nix/store/.links"));
    let mut killed = 0;
    for number in 0..kills() {
        let root = scratch.join(&format!("root-{number}"));
        install(&corpus, &root, &[]);
        let delay = Duration::from_micros(random.below(time.max(1)) as u64);
        killed += usize::from(kill_after(&mut floe_in(&root, &["optimise"]), delay));
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
        run(&mut floe_in(&root, &["optimise"])).expect(0);
        assert_eq!(tree(&root), expected, "contents, modes or times differ");
        assert_eq!(names(&root.join("nix/store/.links")), links);
    }
    assert!(killed > kills() / 3, "only {killed} runs were killed");
}
