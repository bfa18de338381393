//! Beside a living Nix: collections, deletions, copies, imports and optimisers of the real Nix run
//! in a store while floe moves closures into it, and nothing that floe moved is lost.

mod collector;
mod movers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

use floe_engine::{Cancel, CopyOptions, NetworkOptions, SourceOrder, Sources, StoreUri};

use crate::support::{Corpus, Nix, Ran, corpus, floe, nixes, run, scratch};

/// What the commands of one Nix did meanwhile, by name.
#[derive(Debug, Default)]
struct Done {
    succeeded: usize,
    /// The first words of the first failures; Nix may be in its own way.
    failed: Vec<String>,
}

/// A store with a life of its own.
struct Living<'a> {
    nix: &'a Nix,
    root: PathBuf,
    /// How many runs of floe are under way, and how many have begun.
    running: AtomicUsize,
    begun: AtomicUsize,
    is_over: AtomicBool,
    /// Paths that collections deleted, and those of them while floe was at work.
    deleted: AtomicUsize,
    deleted_meanwhile: AtomicUsize,
    done: Mutex<BTreeMap<&'static str, Done>>,
    /// How many collections there were, and that one has ended.
    collections: Mutex<usize>,
    collected: Condvar,
}

impl Living<'_> {
    fn store(&self, args: &[&str]) -> Command {
        let mut command = self.nix.command("nix-store", ["--store"]);
        command.arg(&self.root).args(args);
        command
    }

    /// Runs a command of Nix, and notes how it ended.
    fn note(&self, name: &'static str, command: &mut Command) -> Ran {
        let ran = run(command);
        let mut done = self.done.lock().unwrap();
        let done = done.entry(name).or_default();
        match ran.code {
            Some(0) => done.succeeded += 1,
            _ => {
                let mut lines = ran.stderr.lines().rev();
                let said = lines.find(|line| line.starts_with("error"));
                done.failed.push(said.unwrap_or(&ran.stderr).to_owned());
            }
        }
        ran
    }

    /// `nix-store` with what deletes; it says how much it deleted.
    fn delete(&self, name: &'static str, args: &[&str]) {
        let (running, begun) = (&self.running, &self.begun);
        let before = begun.load(Ordering::SeqCst);
        let was_running = running.load(Ordering::SeqCst) > 0;
        let ran = self.note(name, &mut self.store(args));
        let said = ran.stdout.lines().find_map(|line| {
            let (count, _) = line.split_once(" store paths deleted")?;
            count.trim().parse::<usize>().ok()
        });
        let deleted = said.unwrap_or(0);
        self.deleted.fetch_add(deleted, Ordering::SeqCst);
        if was_running || begun.load(Ordering::SeqCst) > before {
            self.deleted_meanwhile.fetch_add(deleted, Ordering::SeqCst);
        }
    }

    fn until_over(&self, mut work: impl FnMut()) {
        while !self.is_over() {
            work();
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// At least so many rounds, and more until a collection has deleted something during one; how
    /// many paths were fetched.
    fn rounds(
        &self,
        least: usize,
        corpus: &Corpus,
        link: &Path,
        command: fn(&Corpus, &Path) -> Command,
    ) -> u64 {
        let mut fetched = 0;
        for round in 0..MORE * least {
            if round >= least && self.deleted_meanwhile.load(Ordering::SeqCst) > 0 {
                break;
            }
            fetched += self.move_and_release(corpus, link, &mut command(corpus, &self.root));
        }
        fetched
    }

    /// Lets floe move a closure under a root, and asserts that all of it is there while the root
    /// is, whatever was under way; then gives the root up.
    fn move_and_release(&self, corpus: &Corpus, link: &Path, command: &mut Command) -> u64 {
        self.running.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let ran = run(command.arg("--out-link").arg(link));
        self.running.fetch_sub(1, Ordering::SeqCst);
        let fetched = ran.expect(0).json()["copied"].as_u64().unwrap();
        self.assert_whole(corpus, "when floe had ended");
        // Whatever was being collected meanwhile is gone when the next collection ends.
        self.delete("gc after", &["--gc"]);
        self.assert_whole(corpus, "after a collection");
        fs::remove_file(link).unwrap();
        // Every other time it is all garbage before it is asked for again, and collections have
        // something to do; in between, it may just become garbage while it is asked for.
        if fetched == 0 {
            self.delete("gc between", &["--gc"]);
        }
        fetched
    }

    /// Asserts that all that was to happen meanwhile has happened; whether an addition by Nix has
    /// failed, which then leaves its lock behind.
    #[track_caller]
    fn assert_was_lively(&self, fetched: [u64; 2]) -> bool {
        let done = self.done.lock().unwrap();
        let deleted = self.deleted.load(Ordering::SeqCst);
        let meanwhile = self.deleted_meanwhile.load(Ordering::SeqCst);
        let all = format!(
            "{}: fetched {fetched:?}, deleted {deleted}, meanwhile {meanwhile}: {done:#?}",
            self.nix.version
        );
        assert!(
            meanwhile > 0 && deleted >= meanwhile,
            "nothing was deleted; {all}"
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
            let tries = done
                .get(name)
                .map_or(0, |done| done.succeeded + done.failed.len());
            assert!(tries > 0, "{name} was not tried; {all}");
        }
        assert!(done["gc"].succeeded > 0, "no collection succeeded; {all}");
        for (name, done) in done.iter() {
            let is_known = |said: &&String| {
                let mut known = KNOWN.iter();
                let is_floes = said.contains("-floe-");
                !is_floes
                    && known.any(|(whose, known)| name.starts_with(whose) && said.contains(known))
            };
            let unknown: Vec<_> = done.failed.iter().filter(|said| !is_known(said)).collect();
            assert!(unknown.is_empty(), "{name}: {unknown:?}; {all}");
        }
        ["copy", "import"]
            .iter()
            .any(|name| !done[name].failed.is_empty())
    }

    /// Once it is quiet, nothing is left that would be in Nix's way: what it did beside floe, and
    /// was allowed to fail at, it must succeed at now.
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
    fn assert_whole(&self, corpus: &Corpus, when: &str) {
        let mut args = vec!["--check-validity", "--print-invalid"];
        args.extend(corpus.paths.iter().map(String::as_str));
        let invalid = run(&mut self.store(&args)).expect(0).stdout;
        assert_eq!(invalid, "", "{}: not valid {when}", self.nix.version);
        let there = |path: &&String| fs::symlink_metadata(self.root.join(&path[1..])).is_ok();
        let lost: Vec<&String> = corpus.paths.iter().filter(|path| !there(path)).collect();
        assert!(
            lost.is_empty(),
            "{}: lost {when}: {lost:?}",
            self.nix.version
        );
    }
}

#[test]
fn nothing_under_way_is_lost_beside_collections_deletions_copies_and_optimisers() {
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
        let living = Living {
            nix,
            root: scratch.join("root"),
            running: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            deleted: AtomicUsize::new(0),
            deleted_meanwhile: AtomicUsize::new(0),
            done: Mutex::default(),
            collections: Mutex::default(),
            collected: Condvar::new(),
        };
        let fetched = thread::scope(|scope| {
            let living = &living;
            let others = [
                scope.spawn(|| collect(living, [&jq, &curl])),
                scope.spawn(|| add_and_optimise(living, &curl, &exported)),
            ];
            let (link, other_link) = (scratch.join("curl"), scratch.join("jq"));
            let (curl, jq) = (&curl, &jq);
            let movers = [
                scope.spawn(move || living.rounds(rounds, curl, &link, install)),
                scope.spawn(move || living.rounds(rounds, jq, &other_link, copy)),
            ];
            let moved = movers.map(|mover| mover.join());
            living.is_over.store(true, Ordering::SeqCst);
            others.into_iter().for_each(|other| other.join().unwrap());
            moved.map(|moved| moved.unwrap())
        });
        let has_failed = living.assert_was_lively(fetched);
        living.assert_nix_can_work(&curl, &exported);
        assert_nothing_is_left(&living.root, has_failed);
        for corpus in [&curl, &jq] {
            run(&mut install(corpus, &living.root)).expect(0);
        }
        for verifier in &nixes {
            verifier.verify(&living.root, curl.paths.len());
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

/// Nix's own copy of the closure from its cache.
fn copy_with_nix(living: &Living<'_>, corpus: &Corpus) -> Command {
    let from = corpus.file_url("zstd");
    let args = ["copy", "--no-check-sigs", "--from", &from, "--to"];
    let mut copy = living.nix.command("nix", args);
    copy.arg(&living.root).arg(&corpus.root);
    copy
}

/// The closure as `nix-store --import` takes it.
fn export(nix: &Nix, corpus: &Corpus, file: &Path) {
    let mut command = nix.command("nix-store", ["--store"]);
    command
        .arg(corpus.store())
        .arg("--export")
        .args(&corpus.paths);
    let status = command.stdout(fs::File::create(file).unwrap()).status();
    assert!(status.unwrap().success());
}

/// Collections, one after the other, and attempts to delete what floe moves.
fn collect(living: &Living<'_>, corpora: [&Corpus; 2]) {
    living.until_over(|| {
        for corpus in corpora {
            living.delete("gc", &["--gc"]);
            living.delete("delete", &["--delete", &corpus.root]);
            *living.collections.lock().unwrap() += 1;
            living.collected.notify_all();
        }
    });
    let _no_wait_begins = living.collections.lock().unwrap();
    living.collected.notify_all();
}

/// Nix adds what floe adds, one closure from a cache and the other from a file, and optimises. As
/// long as it does, what it works on is no garbage; so collections have their turn in between.
fn add_and_optimise(living: &Living<'_>, corpus: &Corpus, exported: &Path) {
    let steps: [&dyn Fn(); 3] = [
        &|| {
            living.note("copy", &mut copy_with_nix(living, corpus));
        },
        &|| {
            let mut import = living.store(&["--import"]);
            living.note("import", import.stdin(fs::File::open(exported).unwrap()));
        },
        &|| {
            living.note("optimise", &mut living.store(&["--optimise"]));
        },
    ];
    living.until_over(|| {
        for step in steps {
            step();
            let seen = living.collections.lock().unwrap();
            let turn = *seen + COLLECTIONS_BETWEEN;
            let is_not_yet = |seen: &mut usize| *seen < turn && !living.is_over();
            drop(living.collected.wait_while(seen, is_not_yet).unwrap());
        }
    });
}

/// Neither unfinished trees nor temporary roots, nor locks that are not Nix's.
#[track_caller]
fn assert_nothing_is_left(root: &Path, may_have_locks: bool) {
    for directory in ["nix/store", "nix/var/nix/temproots"] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.contains("-floe-"), "{directory}/{name}");
            let is_lock = name.ends_with(".lock");
            assert!(!is_lock || may_have_locks, "{directory}/{name}");
        }
    }
}

/// How many times as many rounds there may be: it is chance what a collection meets.
const MORE: usize = 20;

/// So many collections have their turn before Nix adds again.
const COLLECTIONS_BETWEEN: usize = 2;

/// How Nix fails where it is in its own way, or another process in its way: which of its commands,
/// and what it says. Nothing that names what belongs to floe is known.
const KNOWN: [(&str, &str); 7] = [
    // What somebody needs.
    ("delete", "since it is still alive"),
    // What it had found to be garbage got a referrer.
    ("", "because it is in use by"),
    // A path was added by somebody else after Nix 2.8 had asked.
    ("copy", "not an absolute path: 'nix-archive-1'"),
    // Nix roots only what it brings: what was there already a collection took away meanwhile, and
    // what refers to it could not be registered. An import roots a path before it looks, and an
    // older collector takes it all the same. The files go before or after the rows do.
    ("copy", "is not valid"),
    ("import", "is not valid"),
    ("import", "No such file or directory"),
    // A collection took the file in `.links` that an optimiser was about to link to, or the path
    // that it was reading.
    ("optimise", "No such file or directory"),
];

/// Choices for what nobody has signed.
fn unsigned() -> CopyOptions {
    CopyOptions {
        check_signatures: false,
        ..CopyOptions::default()
    }
}

/// The cache of a corpus.
fn source_of(corpus: &Corpus) -> Sources {
    let location = StoreUri::parse(&corpus.file_url("zstd"), None, None).unwrap();
    let network = NetworkOptions::default();
    Sources::open(
        &[location],
        SourceOrder::AsListed,
        &network,
        &Cancel::default(),
    )
    .unwrap()
}

/// The store below a root directory.
fn store_in(root: &Path) -> StoreUri {
    StoreUri::parse(root.to_str().unwrap(), None, None).unwrap()
}
