//! Commands when the system allows few threads or none, as with `pids.max` or `ulimit -u`.

use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    CommandOutput, Corpus, Scratch, corpus, find_tool, nixes, ran_in_pid_namespace, run, scratch,
};

use crate::support::floe;

struct Fixture {
    corpus: Corpus,
    scratch: Scratch,
    strace: PathBuf,
}

fn fixture() -> Option<Fixture> {
    let strace = find_tool("strace", "strace")?;
    Some(Fixture {
        corpus: corpus("jq")?,
        scratch: scratch(),
        strace,
    })
}

impl Fixture {
    /// Installs the corpus into a new root.
    fn install(&self, name: &str) -> PathBuf {
        let root = self.scratch.join(name);
        let mut install = floe(["install", "--from", &self.corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        run(install.arg(&root).arg(&self.corpus.root)).expect(0);
        root
    }

    /// Runs a command of floe that can start `threads` threads.
    fn run_with_threads(&self, threads: usize, root: &Path, arguments: &[&str]) -> CommandOutput {
        let command = floe(arguments);
        let mut traced = Command::new(&self.strace);
        traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e"]);
        let first = threads + 1;
        traced.arg(format!("inject=clone,clone3:error=EAGAIN:when={first}+"));
        traced.arg(command.get_program()).args(command.get_args());
        run(traced.arg("--root").arg(root))
    }
}

#[test]
fn commands_that_only_read_work_without_threads() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(fixture) = fixture() else { return };
    let root = fixture.install("root");
    for arguments in [
        &["gc", "--dry-run"][..],
        &["roots"],
        &["list"],
        &["verify"],
        &["optimise"],
    ] {
        fixture.run_with_threads(0, &root, arguments).expect(0);
    }
}

#[test]
fn collection_works_with_any_number_of_threads() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(fixture) = fixture() else { return };
    let mut collected = 0;
    for threads in 0..THREADS {
        let root = fixture.install(&threads.to_string());
        for arguments in [&["delete", &fixture.corpus.root][..], &["gc"]] {
            let ran = fixture.run_with_threads(threads, &root, arguments);
            match ran.code {
                // The collector needs a thread that receives new roots.
                Some(1) => _ = ran.stderr_contains("cannot start a thread for"),
                _ => {
                    ran.expect(0);
                    collected += 1;
                }
            }
        }
        for nix in nixes() {
            run(nix
                .command("nix-store", ["--verify", "--check-contents", "--store"])
                .arg(&root))
            .expect(0);
        }
    }
    assert!(collected > 0, "no collection had enough threads");
}

#[test]
fn server_and_copy_without_threads_are_an_error() {
    let Some(fixture) = fixture() else { return };
    let root = fixture.install("root");
    for threads in 0..SERVER_THREADS {
        let arguments = ["serve", "--listen", "127.0.0.1:0"];
        let ran = fixture.run_with_threads(threads, &root, &arguments);
        ran.expect(1).stderr_contains("cannot ");
    }
    let from = root.display().to_string();
    let copy = [
        "copy",
        "--no-check-sigs",
        "--from",
        &from,
        &fixture.corpus.root,
    ];
    let target = fixture.scratch.join("target");
    let ran = fixture.run_with_threads(0, &target, &copy);
    ran.expect(1).stderr_contains("cannot start a thread");
}

/// More than a collection on two cores starts.
const THREADS: usize = 8;

/// Fewer than each server needs: two for signals, one for the store, a worker and a network thread.
const SERVER_THREADS: usize = 5;
