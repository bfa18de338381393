//! `floe gc` and `floe delete`: they delete what Nix deletes, and nothing that is in use.

mod deletion;
mod faults;
mod full_disk;
mod garbage_store;
mod generations;
mod kills;
mod lost_rows;
mod mounts;
mod new_roots;
mod odd_roots;
mod optimise_store;
mod process_threads;
mod races;
mod roots_daemon;
mod unmounted_roots;
mod vacuum;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use floe_format::StoreDir;
use floe_testkit::{
    CommandOutput, Corpus, Nix, corpus, nixes, ran_in_pid_namespace, run, scratch, tree,
};

use crate::support::floe;
use garbage_store::GarbageStore;

/// Returns a command of floe for the store below `root`.
fn floe_in(root: &Path, arguments: &[&str]) -> Command {
    let mut command = floe([arguments[0]]);
    command.arg("--root").arg(root).args(&arguments[1..]);
    command
}

/// Installs the closure of a corpus, without roots.
fn install(corpus: &Corpus, root: &Path) {
    let mut install = floe(["install", "--from", &corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &corpus.key, "--root"]);
    run(install.arg(root).arg(&corpus.root)).expect(0);
}

fn gc(root: &Path, arguments: &[&str]) -> CommandOutput {
    run(floe_in(root, &["gc"]).args(arguments))
}

/// The lines that name files of the store.
fn paths(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(|line| line.trim().replace('"', ""));
    lines
        .filter(|line| line.starts_with("/nix/store/"))
        .collect()
}

/// The lines that name store paths, without other files. Nix prints these as live too.
fn store_paths(text: &str) -> BTreeSet<String> {
    let is_path = |line: &String| StoreDir::default().parse(line).is_ok();
    paths(text).into_iter().filter(is_path).collect()
}

/// The names in a directory.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

fn rows(nix: &Nix, root: &Path) -> String {
    nix.store(root, ["--dump-db"])
}

fn gc_of_nix(nix: &Nix, root: &Path, arguments: &[&str]) -> CommandOutput {
    let mut command = nix.command("nix-store", ["--store"]);
    run(command.arg(root).arg("--gc").args(arguments)).expect(0)
}

/// The settings in all combinations.
fn settings() -> impl Iterator<Item = [&'static str; 6]> {
    let pairs = [
        ("false", "false"),
        ("false", "true"),
        ("true", "false"),
        ("true", "true"),
    ];
    pairs.into_iter().map(|(derivations, outputs)| {
        [
            "--option",
            "keep-derivations",
            derivations,
            "--option",
            "keep-outputs",
            outputs,
        ]
    })
}

#[test]
fn dead_and_live_paths_equal_those_of_nix() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    let mut compared = 0;
    for nix in nixes() {
        let mut results = BTreeSet::new();
        for settings in settings() {
            let scratch = scratch();
            let store = GarbageStore::create(&nix, &corpus, &scratch.join("root"));
            let root = &store.root;
            let before = tree(root);
            let dead = gc(root, &[&settings[..], &["--print-dead"]].concat()).expect(0);
            let live = gc(root, &[&settings[..], &["--print-live"]].concat()).expect(0);
            let listed = gc(root, &[&settings[..], &["--dry-run", "--json"]].concat()).expect(0);
            assert_eq!(tree(root), before, "a dry run changed the store");
            // `--print-dead` of Nix deletes files whose names are not paths, so it comes last.
            let theirs = gc_of_nix(&nix, root, &[&settings[..], &["--print-live"]].concat());
            assert_eq!(
                paths(&live.stdout),
                store_paths(&theirs.stdout),
                "{} {settings:?}",
                nix.version
            );
            let store = GarbageStore::create(&nix, &corpus, &scratch.join("again"));
            let theirs = gc_of_nix(
                &nix,
                &store.root,
                &[&settings[..], &["--print-dead"]].concat(),
            );
            assert_eq!(
                paths(&dead.stdout),
                paths(&theirs.stdout),
                "{} {settings:?}",
                nix.version
            );
            let json = listed.json();
            assert_eq!(
                json["dead"].as_array().unwrap().len(),
                paths(&dead.stdout).len()
            );
            assert!(json["bytes"].as_u64().unwrap() > 0);
            assert!(!paths(&dead.stdout).is_empty() && !paths(&live.stdout).is_empty());
            results.insert(paths(&live.stdout));
            compared += 1;
        }
        assert!(results.len() > 2, "the settings make no difference");
    }
    assert!(compared > 0 || nixes().is_empty());
}

#[test]
fn collected_store_equals_that_of_nix() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    for nix in nixes() {
        for settings in settings() {
            let scratch = scratch();
            let ours = GarbageStore::create(&nix, &corpus, &scratch.join("ours"));
            let theirs = GarbageStore::create(&nix, &corpus, &scratch.join("theirs"));
            assert_eq!(rows(&nix, &ours.root), rows(&nix, &theirs.root));
            let dead = paths(&gc(&ours.root, &[&settings[..], &["--print-dead"]].concat()).stdout);
            let said = gc(&ours.root, &settings).expect(0);
            let theirs_said = gc_of_nix(&nix, &theirs.root, &settings);
            assert_eq!(
                rows(&nix, &ours.root),
                rows(&nix, &theirs.root),
                "{}",
                nix.version
            );
            assert_eq!(tree(&ours.root), tree(&theirs.root), "{}", nix.version);
            for directory in ["nix/store/.links", "nix/var/nix/gcroots/auto"] {
                let [ours, theirs] =
                    [&ours, &theirs].map(|store| names(&store.root.join(directory)));
                assert_eq!(ours, theirs, "{directory}");
            }
            let temporary = names(&ours.root.join("nix/var/nix/temproots"));
            assert_eq!(
                temporary,
                BTreeSet::from([format!("{}-live", std::process::id())])
            );
            let count = format!("deleted {} path", dead.len());
            assert!(said.stderr.contains(&count), "{count}: {}", said.stderr);
            let count = format!("{} store paths deleted", dead.len());
            assert!(
                theirs_said.stdout.contains(&count),
                "{count}: {}",
                theirs_said.stdout
            );
            nix.verify(&ours.root, 1);
            // Nothing is left to do.
            let again = gc(&ours.root, &[&settings[..], &["--json"]].concat()).expect(0);
            assert_eq!(again.json()["paths"], 0);
        }
    }
}

#[test]
fn roots_are_printed_as_by_nix() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let store = GarbageStore::create(&nix, &corpus, &scratch.join("root"));
        let own = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().map(|line| line.replace('"', ""));
            lines
                .filter(|line| line.contains(" -> ") && !line.starts_with("/proc/"))
                .collect()
        };
        let ours = own(&gc(&store.root, &["--print-roots"]).expect(0).stdout);
        assert!(ours.len() > 2, "{ours:?}");
        assert_eq!(
            ours,
            own(&gc_of_nix(&nix, &store.root, &["--print-roots"]).stdout)
        );
    }
}

#[test]
fn limits_end_a_collection_early() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let store = GarbageStore::create(&nix, &corpus, &scratch.join("root"));
        let root = &store.root;
        let dead = || gc(root, &["--dry-run", "--json"]).expect(0).json();
        let count = |json: &serde_json::Value| json["dead"].as_array().unwrap().len() as u64;
        let all = dead();
        // As in Nix, a limit of nothing deletes nothing.
        let none = gc(root, &["--max-freed", "0", "--json"]).expect(0).json();
        assert_eq!(
            (none["paths"].as_u64(), count(&dead())),
            (Some(0), count(&all))
        );
        let some = gc(root, &["--max-freed", "100K", "--json"])
            .expect(0)
            .json();
        let freed = some["bytesFreed"].as_u64().unwrap();
        assert!(freed > 100 * 1024, "{some}");
        let left = dead();
        assert_eq!(some["paths"].as_u64().unwrap() + count(&left), count(&all));
        assert!(count(&left) > 0, "the limit had no effect: {some}");
        // There is more free space than this.
        let none = gc(root, &["--free", "1K", "--json"]).expect(0).json();
        assert_eq!(none["paths"], 0);
        let all = gc(root, &["--free", "1000000T", "--json"]).expect(0).json();
        assert_eq!(all["paths"].as_u64().unwrap(), count(&left));
        nix.verify(root, 1);
    }
}

#[test]
fn store_that_is_no_store_is_an_error() {
    if ran_in_pid_namespace() {
        return;
    }
    let scratch = scratch();
    for command in ["gc", "optimise"] {
        run(&mut floe_in(&scratch.join("absent"), &[command]))
            .expect(4)
            .stderr_contains("there is no store");
        assert!(!scratch.join("absent").exists());
        let mut command = floe([command, "--store", "https://cache.example.org"]);
        run(&mut command)
            .expect(2)
            .stderr_contains("it is a binary cache");
    }
    run(&mut floe(["gc", "--max-freed", "much"]))
        .expect(2)
        .stderr_contains("not a number of bytes");
    run(&mut floe(["gc", "--delete-older-than", "soon"]))
        .expect(2)
        .stderr_contains("it is not a time");
}
