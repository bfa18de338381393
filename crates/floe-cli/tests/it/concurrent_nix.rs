//! Copies into a store while Nix runs garbage collections, deletions, copies, imports and
//! `--optimise` in it. No path that floe installs and that is a GC root may be lost.

mod in_process;
mod old_collector;
mod stale_root;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use floe_copy::{CopyRequest, RequestedPaths, resolve_store_uri};
use floe_testkit::{CommandOutput, Corpus, Nix, corpus, nixes, ran_in_pid_namespace, run, scratch};
use floe_transfer::{CopyOptions, UriContext};
use parking_lot::{Condvar, Mutex};

use crate::support::floe;

/// Results of all runs of one Nix command.
#[derive(Debug, Default)]
struct CommandResults {
    succeeded: usize,
    /// One error line per failed run. Concurrent Nix commands can make each other fail.
    failed: Vec<String>,
}

/// A store in which Nix and floe run concurrently.
struct SharedStore<'a> {
    nix: &'a Nix,
    root: PathBuf,
    /// Number of floe runs in progress, and number of started runs.
    running: AtomicUsize,
    begun: AtomicUsize,
    is_over: AtomicBool,
    /// Number of paths that garbage collections deleted, in total and while floe was running.
    deleted: AtomicUsize,
    deleted_during_copies: AtomicUsize,
    results: Mutex<BTreeMap<&'static str, CommandResults>>,
    /// Number of completed garbage collections, and a condition variable for changes of it.
    collections: Mutex<usize>,
    collected: Condvar,
}

impl SharedStore<'_> {
    fn store(&self, args: &[&str]) -> Command {
        let mut command = self.nix.command("nix-store", ["--store"]);
        command.arg(&self.root).args(args);
        command
    }

    /// Runs a Nix command and records its result.
    fn run_and_record(&self, name: &'static str, command: &mut Command) -> CommandOutput {
        let ran = run(command);
        let mut results = self.results.lock();
        let results = results.entry(name).or_default();
        match ran.code {
            Some(0) => results.succeeded += 1,
            _ => {
                // An error with a trace has its own text in the last of several lines.
                let mut lines = ran.stderr.lines().map(str::trim).rev();
                let said = lines.find(|line| line.starts_with("error: "));
                results.failed.push(said.unwrap_or(&ran.stderr).to_owned());
            }
        }
        ran
    }

    /// Runs a deleting `nix-store` command and adds up the number of deleted paths.
    fn delete(&self, name: &'static str, args: &[&str]) {
        let (running, begun) = (&self.running, &self.begun);
        let before = begun.load(Ordering::SeqCst);
        let was_running = running.load(Ordering::SeqCst) > 0;
        let ran = self.run_and_record(name, &mut self.store(args));
        let said = ran.stdout.lines().find_map(|line| {
            let (count, _) = line.split_once(" store paths deleted")?;
            count.trim().parse::<usize>().ok()
        });
        let deleted = said.unwrap_or(0);
        self.deleted.fetch_add(deleted, Ordering::SeqCst);
        if was_running || begun.load(Ordering::SeqCst) > before {
            self.deleted_during_copies
                .fetch_add(deleted, Ordering::SeqCst);
        }
    }

    fn repeat_until_over(&self, mut work: impl FnMut()) {
        while !self.is_over() {
            work();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Runs at least `minimum` rounds, and more until a collection has deleted paths during one.
    /// Returns the number of fetched paths.
    fn run_rounds(
        &self,
        minimum: usize,
        corpus: &Corpus,
        link: &Path,
        command: fn(&Corpus, &Path) -> Command,
    ) -> u64 {
        let mut fetched = 0;
        for round in 0..MAX_ROUNDS_FACTOR * minimum {
            if round >= minimum && self.deleted_during_copies.load(Ordering::SeqCst) > 0 {
                break;
            }
            fetched += self.copy_under_root(corpus, link, &mut command(corpus, &self.root));
        }
        fetched
    }

    /// Copies a closure under a GC root and asserts that the whole closure exists while the root
    /// does. Then removes the root. Returns the number of fetched paths.
    fn copy_under_root(&self, corpus: &Corpus, link: &Path, command: &mut Command) -> u64 {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let ran = run(command.arg("--out-link").arg(link));
        self.running.fetch_sub(1, Ordering::SeqCst);
        let fetched = ran.expect(0).json()["copied"].as_u64().unwrap();
        self.assert_closure_valid(corpus, "after floe ended");
        // A collection that overlapped with the copy ends before this one starts.
        self.delete("gc after", &["--gc"]);
        self.assert_closure_valid(corpus, "after a garbage collection");
        fs::remove_file(link).unwrap();
        // If nothing was fetched, collect everything, so that the next round starts from an empty
        // store. Otherwise the closure may become garbage during the next round.
        if fetched == 0 {
            self.delete("gc between", &["--gc"]);
        }
        fetched
    }

    /// Asserts that every Nix command ran and failed only in known ways. Returns whether an adding
    /// command failed. Nix then leaves its lock file behind.
    #[track_caller]
    fn assert_commands_ran(&self, fetched: [u64; 2]) -> bool {
        let results = self.results.lock();
        let deleted = self.deleted.load(Ordering::SeqCst);
        let during_copies = self.deleted_during_copies.load(Ordering::SeqCst);
        let all = format!(
            "{}: fetched {fetched:?}, deleted {deleted}, {during_copies} during copies: \
             {results:#?}",
            self.nix.version
        );
        assert!(
            during_copies > 0 && deleted >= during_copies,
            "no path was deleted during a copy; {all}"
        );
        let names = [
            "gc",
            "gc after",
            "gc between",
            "delete",
            "copy",
            "import",
            "optimise",
        ];
        for name in names {
            let tries = results
                .get(name)
                .map_or(0, |results| results.succeeded + results.failed.len());
            assert!(tries > 0, "{name} did not run; {all}");
        }
        assert!(
            results["gc"].succeeded > 0,
            "no garbage collection succeeded; {all}"
        );
        for (name, results) in results.iter() {
            let is_known = |said: &&String| {
                let mut known = KNOWN_ERRORS.iter();
                let is_floes = said.contains("-floe-");
                !is_floes
                    && known.any(|(whose, known)| name.starts_with(whose) && said.contains(known))
            };
            let unknown: Vec<_> = results
                .failed
                .iter()
                .filter(|said| !is_known(said))
                .collect();
            assert!(unknown.is_empty(), "{name}: {unknown:?}; {all}");
        }
        ["copy", "import"]
            .iter()
            .any(|name| !results[name].failed.is_empty())
    }

    /// Asserts that floe left nothing that blocks Nix: commands that may fail during concurrent
    /// copies must succeed afterwards.
    #[track_caller]
    fn assert_nix_can_work(&self, corpus: &Corpus, exported: &Path) {
        let mut copy = copy_with_nix(self, corpus);
        let mut import = self.store(&["--import"]);
        import.stdin(fs::File::open(exported).unwrap());
        let mut optimise = self.store(&["--optimise"]);
        let mut collect = self.store(&["--gc"]);
        for command in [&mut copy, &mut import, &mut optimise, &mut collect] {
            run(command).expect(0);
        }
    }

    #[track_caller]
    fn assert_closure_valid(&self, corpus: &Corpus, when: &str) {
        let mut args = vec!["--check-validity", "--print-invalid"];
        args.extend(corpus.paths.iter().map(String::as_str));
        let invalid = run(&mut self.store(&args)).expect(0).stdout;
        assert_eq!(invalid, "", "{}: invalid {when}", self.nix.version);
        let there = |path: &&String| fs::symlink_metadata(self.root.join(&path[1..])).is_ok();
        let lost: Vec<&String> = corpus.paths.iter().filter(|path| !there(path)).collect();
        assert!(
            lost.is_empty(),
            "{}: missing {when}: {lost:?}",
            self.nix.version
        );
    }
}

#[test]
fn rooted_closures_survive_concurrent_nix_commands() {
    if ran_in_pid_namespace() {
        return;
    }
    let (Some(jq), Some(curl)) = (corpus("jq"), corpus("curl")) else {
        return;
    };
    let rounds = match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 100,
        None => 5,
    };
    let nixes = nixes();
    for nix in &nixes {
        let scratch = scratch();
        let exported = scratch.join("exported");
        export(nix, &jq, &exported);
        let shared = SharedStore {
            nix,
            root: scratch.join("root"),
            running: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            deleted: AtomicUsize::new(0),
            deleted_during_copies: AtomicUsize::new(0),
            results: Mutex::default(),
            collections: Mutex::default(),
            collected: Condvar::new(),
        };
        // Two commands of Nix that create the same store at once disturb each other: one reads the
        // schema file while the other one writes it.
        nix.store(&shared.root, ["--gc"]);
        let fetched = thread::scope(|scope| {
            let shared = &shared;
            let nix_threads = [
                scope.spawn(|| collect(shared, [&jq, &curl])),
                scope.spawn(|| add_and_optimise(shared, &curl, &exported)),
            ];
            let (link, other_link) = (scratch.join("curl"), scratch.join("jq"));
            let (curl, jq) = (&curl, &jq);
            let copies = [
                scope.spawn(move || shared.run_rounds(rounds, curl, &link, install)),
                scope.spawn(move || shared.run_rounds(rounds, jq, &other_link, copy)),
            ];
            let fetched = copies.map(|copy| copy.join());
            shared.is_over.store(true, Ordering::SeqCst);
            nix_threads
                .into_iter()
                .for_each(|other| other.join().unwrap());
            fetched.map(|fetched| fetched.unwrap())
        });
        let may_have_locks = shared.assert_commands_ran(fetched);
        shared.assert_nix_can_work(&curl, &exported);
        assert_no_temporary_files(&shared.root, may_have_locks);
        for corpus in [&curl, &jq] {
            run(&mut install(corpus, &shared.root)).expect(0);
        }
        for verifier in &nixes {
            verifier.verify(&shared.root, curl.paths.len());
        }
    }
}

fn install(corpus: &Corpus, root: &Path) -> Command {
    let mut command = floe(["install", "--json", "--from", &corpus.file_url("zstd")]);
    command.args(["--trusted-public-keys", &corpus.key, "--root"]);
    command.arg(root).arg(&corpus.root);
    command
}

fn copy(corpus: &Corpus, root: &Path) -> Command {
    let mut command = floe(["copy", "--json", "--no-check-sigs", "--from"]);
    command.arg(corpus.store()).arg("--to").arg(root);
    command.arg(&corpus.root);
    command
}

/// Returns Nix's own copy of the closure from its cache.
fn copy_with_nix(shared: &SharedStore<'_>, corpus: &Corpus) -> Command {
    let from = corpus.file_url("zstd");
    let args = ["copy", "--no-check-sigs", "--from", &from, "--to"];
    let mut copy = shared.nix.command("nix", args);
    copy.arg(&shared.root).arg(&corpus.root);
    copy
}

/// Exports the closure to a file for `nix-store --import`.
fn export(nix: &Nix, corpus: &Corpus, file: &Path) {
    let mut command = nix.command("nix-store", ["--store"]);
    command
        .arg(corpus.store())
        .arg("--export")
        .args(&corpus.paths);
    let status = command.stdout(fs::File::create(file).unwrap()).status();
    assert!(status.unwrap().success());
}

/// Runs garbage collections, and tries to delete the roots that floe copies.
fn collect(shared: &SharedStore<'_>, corpora: [&Corpus; 2]) {
    shared.repeat_until_over(|| {
        for corpus in corpora {
            shared.delete("gc", &["--gc"]);
            shared.delete("delete", &["--delete", &corpus.root]);
            *shared.collections.lock() += 1;
            shared.collected.notify_all();
        }
    });
    let _no_wait_begins = shared.collections.lock();
    shared.collected.notify_all();
}

/// Lets Nix add the same paths as floe, from a cache and from a file, and optimise the store.
/// Between these commands it waits for garbage collections, because the paths that Nix works on
/// are not garbage.
fn add_and_optimise(shared: &SharedStore<'_>, corpus: &Corpus, exported: &Path) {
    let steps: [&dyn Fn(); 3] = [
        &|| {
            shared.run_and_record("copy", &mut copy_with_nix(shared, corpus));
        },
        &|| {
            let mut import = shared.store(&["--import"]);
            shared.run_and_record("import", import.stdin(fs::File::open(exported).unwrap()));
        },
        &|| {
            shared.run_and_record("optimise", &mut shared.store(&["--optimise"]));
        },
    ];
    shared.repeat_until_over(|| {
        for step in steps {
            step();
            let mut seen = shared.collections.lock();
            let turn = *seen + COLLECTIONS_BETWEEN;
            let is_not_yet = |seen: &mut usize| *seen < turn && !shared.is_over();
            shared.collected.wait_while(&mut seen, is_not_yet);
        }
    });
}

/// Asserts that there are no staged trees and temporary roots, and only lock files of Nix.
#[track_caller]
fn assert_no_temporary_files(root: &Path, may_have_locks: bool) {
    for directory in ["nix/store", "nix/var/nix/temproots"] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.contains("-floe-"), "{directory}/{name}");
            let is_lock = name.ends_with(".lock");
            assert!(!is_lock || may_have_locks, "{directory}/{name}");
        }
    }
}

/// Maximum number of rounds, as a multiple of the minimum. Which paths a collection deletes is
/// random.
const MAX_ROUNDS_FACTOR: usize = 20;

/// Number of garbage collections between two additions by Nix.
const COLLECTIONS_BETWEEN: usize = 2;

/// Error messages of Nix that other processes cause, with the command that prints them. None of
/// them mentions files of floe.
const KNOWN_ERRORS: [(&str, &str); 9] = [
    // Another process uses the path.
    ("delete", "since it is still alive"),
    // A path became a referrer of garbage during the collection.
    ("", "because it is in use by"),
    // Another process added a path after Nix 2.8 had checked for it.
    ("copy", "not an absolute path: 'nix-archive-1'"),
    // Nix adds temporary roots only for the paths that it copies. A collection may delete a
    // reference that was valid before, and registration fails. Copies and imports root a path
    // before its check, but an older collector still deletes it. Files are deleted before or after
    // their rows.
    ("copy", "is not valid"),
    ("import", "is not valid"),
    ("copy", "No such file or directory"),
    ("import", "No such file or directory"),
    // The same collector fails to delete the directory of a path that Nix is writing. The checks
    // of all contents at the end would find a tree of floe that a collector has damaged.
    ("gc", "Directory not empty"),
    // A collection deleted the file in `.links` that an optimiser was about to link to, or the
    // path that it was reading.
    ("optimise", "No such file or directory"),
];

/// Options without signature checks.
fn options_without_signatures() -> CopyOptions {
    CopyOptions {
        check_signatures: false,
        ..CopyOptions::default()
    }
}

/// Returns a request to copy a corpus from its cache into the store below a root directory.
fn copy_of(corpus: &Corpus, root: &Path) -> CopyRequest {
    let store = |text: &str| resolve_store_uri(text, &UriContext::default()).unwrap();
    let source = store(&corpus.file_url("zstd"));
    let paths = RequestedPaths::Named(vec![corpus.root.clone()]);
    CopyRequest {
        options: options_without_signatures(),
        ..CopyRequest::new(vec![source], store(root.to_str().unwrap()), paths)
    }
}
