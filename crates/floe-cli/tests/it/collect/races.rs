//! Collections by floe while floe and Nix install, run, and collect too. No path that has a root is
//! lost, and no half path stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::{Corpus, Nix, TIMEOUT, corpus, nixes, ran_in_pid_namespace, run, scratch};

use super::{floe_in, gc};
use crate::support::floe;

/// A store that several processes change.
struct Shared<'a> {
    nix: &'a Nix,
    corpus: &'a Corpus,
    /// The paths with the sizes of their closures.
    closures: Vec<(String, usize)>,
    root: PathBuf,
    is_over: AtomicBool,
    installs: AtomicUsize,
    deleted: AtomicUsize,
}

impl Shared<'_> {
    fn repeat(&self, mut work: impl FnMut(usize)) {
        for number in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            work(number);
        }
    }

    /// Collects by floe, sometimes with a limit.
    fn collect(&self) {
        self.repeat(|number| {
            let limit: &[&str] = match number % 3 {
                0 => &["--json", "--max-freed", "1M"],
                _ => &["--json"],
            };
            let result = gc(&self.root, limit).expect(0).json();
            assert_eq!(result["failures"].as_array().unwrap().len(), 0, "{result}");
            let deleted = result["paths"].as_u64().unwrap();
            self.deleted.fetch_add(deleted as usize, Ordering::SeqCst);
        });
    }

    fn collect_by_nix(&self) {
        self.repeat(|_| {
            let mut command = self.nix.command("nix-store", ["--store"]);
            run(command.arg(&self.root).arg("--gc")).expect(0);
            // Installs run between two collections.
            thread::sleep(Duration::from_millis(50));
        });
    }

    /// Installs one path after the other with a root, checks its closure, and removes the root.
    fn install(&self, link: &Path, install: impl Fn(&str, &Path) -> Command) {
        self.repeat(|number| {
            let (path, closure_len) = &self.closures[number % self.closures.len()];
            run(&mut install(path, link)).expect(0);
            if link.ends_with("by-nix") {
                // Nix looks whether the path is valid before it makes a temporary root. A collector
                // may delete the path in between, and Nix succeeds all the same. Now there is a
                // root, so the second run finds the path or fetches it.
                run(&mut install(path, link)).expect(0);
            }
            let verified = run(floe_in(&self.root, &["verify"]).args(["--json", path]));
            let shown = link.display();
            assert_eq!(verified.code, Some(0), "{shown}: {}", verified.stdout);
            let infos = run(floe_in(&self.root, &["info"]).args(["-r", "--json", path])).expect(0);
            let found = infos.json().as_object().map(serde_json::Map::len);
            assert_eq!(found, Some(*closure_len), "{path}");
            self.installs.fetch_add(1, Ordering::SeqCst);
            fs::remove_file(link).unwrap();
            // A collection may delete all of it.
            // The pauses vary the order of the races.
            thread::sleep(Duration::from_millis(number as u64 % 3 * 20));
        });
    }

    fn install_by_floe(&self, path: &str, link: &Path) -> Command {
        let mut install = floe(["install", "--no-check-sigs", "--from"]);
        let from = self.corpus.file_url("zstd");
        install.arg(from).arg("--root").arg(&self.root);
        install.arg("-o").arg(link).arg(path);
        install
    }

    fn install_by_nix(&self, path: &str, link: &Path) -> Command {
        let mut install = self.nix.command("nix-store", ["--store"]);
        let from = self.corpus.file_url("zstd");
        install
            .arg(&self.root)
            .args(["-r", path, "--add-root"])
            .arg(link);
        install.args(["--indirect", "--option", "substituters", &from]);
        install.args(["--option", "require-sigs", "false"]);
        install
    }
}

/// The paths of a corpus with the sizes of their closures.
fn closures(nix: &Nix, corpus: &Corpus) -> Vec<(String, usize)> {
    let closure = |path: &str| nix.store(&corpus.store(), ["-qR", path]).lines().count();
    let paths = corpus.paths.iter();
    paths.map(|path| (path.clone(), closure(path))).collect()
}

/// The programs that collect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collector {
    /// floe alone. Nix installs too: its own collectors can remove the link in `gcroots/auto` of a
    /// root that is made again.
    Floe,
    /// floe and Nix. Only floe installs.
    Both,
}

#[test]
fn collections_beside_installs_lose_no_root() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let collectors = [Collector::Floe, Collector::Both];
    let nixes = nixes();
    let runs = nixes
        .iter()
        .flat_map(|nix| collectors.map(|collector| (nix, collector)));
    for (nix, collector) in runs {
        let scratch = scratch();
        let shared = Shared {
            nix,
            corpus: &corpus,
            closures: closures(nix, &corpus),
            root: scratch.join("root"),
            is_over: AtomicBool::new(false),
            installs: AtomicUsize::new(0),
            deleted: AtomicUsize::new(0),
        };
        run(&mut shared.install_by_floe(&corpus.root, &scratch.join("first"))).expect(0);
        fs::remove_file(scratch.join("first")).unwrap();
        let links = ["by-floe", "by-floe-too", "by-nix"].map(|name| scratch.join(name));
        thread::scope(|scope| {
            scope.spawn(|| shared.collect());
            scope.spawn(|| shared.collect());
            if collector == Collector::Both {
                scope.spawn(|| shared.collect_by_nix());
            }
            scope.spawn(|| {
                shared.install(&links[0], |path, link| shared.install_by_floe(path, link))
            });
            scope.spawn(|| {
                shared.install(&links[1], |path, link| shared.install_by_floe(path, link))
            });
            if collector == Collector::Floe {
                scope.spawn(|| {
                    shared.install(&links[2], |path, link| shared.install_by_nix(path, link))
                });
            }
            let began = Instant::now();
            // A thread that panics ends the scope only when the others have ended.
            let has_deleted = || shared.deleted.load(Ordering::SeqCst) > 0;
            while began.elapsed() < duration() || !has_deleted() && began.elapsed() < TIMEOUT {
                // The races last for a given time.
                thread::sleep(Duration::from_millis(100));
            }
            shared.is_over.store(true, Ordering::SeqCst);
        });
        let (installs, deleted) = (shared.installs.into_inner(), shared.deleted.into_inner());
        assert!(installs > 3, "{installs} installs");
        assert!(deleted > 0, "no collection of floe deleted a path");
        gc(&shared.root, &[]).expect(0);
        nix.verify(&shared.root, 0);
        let left = gc(&shared.root, &["--dry-run", "--json"]).expect(0).json();
        assert_eq!(left["dead"].as_array().map(Vec::len), Some(0), "{left}");
    }
}

/// Longer in full runs.
fn duration() -> Duration {
    Duration::from_secs(match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 40,
        None => 4,
    })
}
