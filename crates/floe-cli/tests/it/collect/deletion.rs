//! `floe delete`: given paths.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floe_testkit::{
    CommandOutput, Corpus, Nix, Scratch, corpus, nixes, ran_in_pid_namespace, run, scratch,
};

use super::floe_in;
use super::garbage_store::{GarbageStore, place};
use crate::support::floe;

struct Store {
    root: PathBuf,
    corpus: Corpus,
}

impl Store {
    fn create(corpus: Corpus, root: PathBuf) -> Store {
        let mut install = floe(["install", "--from", &corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &corpus.key, "--root"]);
        run(install.arg(&root).arg(&corpus.root)).expect(0);
        Store { root, corpus }
    }

    fn delete(&self, arguments: &[&str]) -> CommandOutput {
        run(floe_in(&self.root, &["delete"]).args(arguments))
    }

    fn keep(&self, path: &str) {
        symlink(path, self.root.join("nix/var/nix/gcroots/kept")).unwrap();
    }

    fn valid(&self) -> BTreeSet<String> {
        let mut info = floe_in(&self.root, &["info"]);
        let infos = run(info.args(["--all", "--json"])).expect(0).json();
        infos.as_object().unwrap().keys().cloned().collect()
    }
}

fn references(nix: &Nix, root: &Path, path: &str) -> Vec<String> {
    let printed = nix.store(root, ["-q", "--references", path]);
    let others = printed.lines().filter(|line| *line != path);
    others.map(str::to_owned).collect()
}

#[test]
fn dead_path_is_deleted_and_its_references_stay() {
    for nix in nixes() {
        let Some(corpus) = corpus("jq") else { return };
        let scratch = scratch();
        let store = Store::create(corpus, scratch.join("root"));
        let root_path = store.corpus.root.clone();
        let planned = store
            .delete(&["--dry-run", "--json", &root_path])
            .expect(0)
            .json();
        assert_eq!(planned["dead"][0]["path"], root_path);
        let before = store.valid();
        assert!(before.contains(&root_path));
        store
            .delete(&[&root_path])
            .expect(0)
            .stderr_contains("deleted 1 path, freed");
        let mut expected = before;
        expected.remove(&root_path);
        assert_eq!(store.valid(), expected);
        assert!(!place(&store.root, &root_path).exists());
        nix.verify(&store.root, expected.len());
        store
            .delete(&[&root_path])
            .expect(0)
            .stderr_contains("skipping")
            .stderr_contains("this store does not have it");
    }
}

#[test]
fn live_path_is_refused_with_the_chain_that_keeps_it() {
    for nix in nixes() {
        let Some(corpus) = corpus("jq") else { return };
        let scratch = scratch();
        let store = Store::create(corpus, scratch.join("root"));
        let (root, root_path) = (&store.root, store.corpus.root.clone());
        let reference = references(&nix, root, &root_path).remove(0);
        // Another path refers to it.
        store
            .delete(&[&reference])
            .expect(1)
            .stderr_contains("another path refers to it")
            .stderr_contains(&reference)
            .stderr_contains("try --also-referrers");
        store.keep(&root_path);
        let chain = format!("{root_path} -> ");
        store
            .delete(&[&reference])
            .expect(1)
            .stderr_contains("gcroots/kept keeps it")
            .stderr_contains(&chain);
        let all = store.valid();
        assert_eq!(
            all.len(),
            store.corpus.paths.len(),
            "a refused deletion deleted"
        );
        let skipped = store.delete(&["--skip-alive", "--json", &reference, &root_path]);
        assert_eq!(skipped.expect(0).json()["paths"], 0);
        // A root outside of the deleted paths keeps its closure.
        store.delete(&["--also-referrers", &reference]).expect(1);
        assert_eq!(store.valid(), all);
        store.delete(&["--ignore-liveness", &root_path]).expect(0);
        assert!(!store.valid().contains(&root_path));
        nix.verify(root, all.len() - 1);
    }
}

#[test]
fn closure_and_referrers_are_deleted_on_request() {
    for nix in nixes() {
        let Some(corpus) = corpus("jq") else { return };
        let scratch = scratch();
        let store = Store::create(corpus, scratch.join("root"));
        let (root, root_path) = (&store.root, store.corpus.root.clone());
        // A path without references, which others need.
        let mut leaves = store.corpus.paths.iter();
        let leaf = leaves.find(|path| references(&nix, root, path).is_empty());
        let leaf = leaf.unwrap().clone();
        let printed = nix.store(root, ["-q", "--referrers-closure", &leaf]);
        let referrers: BTreeSet<String> = printed.lines().map(str::to_owned).collect();
        assert!(referrers.len() > 1);
        let before = store.valid();
        store.delete(&["--also-referrers", &leaf]).expect(0);
        assert_eq!(store.valid(), &before - &referrers);
        nix.verify(root, before.len() - referrers.len());

        // The rest of the closure, except for what a root keeps.
        let again = Store::create(store.corpus, scratch.join("again"));
        again.keep(&leaf);
        let kept = nix.store(&again.root, ["-qR", &leaf]);
        let kept: BTreeSet<String> = kept.lines().map(str::to_owned).collect();
        again.delete(&["--recursive", &root_path]).expect(1);
        assert_eq!(again.valid(), before);
        again
            .delete(&["--recursive", "--skip-alive", &root_path])
            .expect(0);
        assert_eq!(again.valid(), kept);
        nix.verify(&again.root, kept.len());
    }
}

#[test]
fn path_without_row_is_deleted_unless_it_is_in_use() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let store = Store::create(corpus, scratch.join("root"));
    let name = format!("{}-invalid", "1".repeat(32));
    let path = format!("/nix/store/{name}");
    fs::create_dir(store.root.join("nix/store").join(&name)).unwrap();
    let live = store
        .root
        .join(format!("nix/var/nix/temproots/{}-live", std::process::id()));
    fs::write(&live, format!("{path}\0")).unwrap();
    let file = fs::File::open(&live).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    store
        .delete(&[&path])
        .expect(1)
        .stderr_contains("a process uses it");
    drop(file);
    let deleted = store.delete(&["--json", &path, &path]).expect(0).json();
    assert_eq!(deleted["paths"], 1);
    assert!(!place(&store.root, &path).exists());
}

#[test]
fn derivation_of_a_live_output_is_refused_as_by_nix() {
    if ran_in_pid_namespace() {
        return;
    }
    for nix in nixes() {
        let Some(corpus) = corpus("curl") else { return };
        let scratch = scratch();
        let garbage = GarbageStore::create(&nix, &corpus, &scratch.join("root"));
        let output = fs::read_link(garbage.root.join("nix/var/nix/gcroots/output")).unwrap();
        let output = output.display().to_string();
        let deriver = nix.store(&garbage.root, ["-q", "--deriver", &output]);
        let delete = |options: &[&str]| {
            let mut delete = floe_in(&garbage.root, &["delete"]);
            run(delete.args(options).arg(deriver.trim()))
        };
        delete(&[])
            .expect(1)
            .stderr_contains(&format!("{output} -> "));
        let mut theirs = nix.command("nix-store", ["--store"]);
        theirs.arg(&garbage.root).args(["--delete", deriver.trim()]);
        assert_ne!(run(&mut theirs).code, Some(0), "{}", nix.version);
        let without = ["--option", "keep-derivations", "false"];
        delete(&[&without[..], &["--also-referrers"]].concat()).expect(0);
        assert!(!place(&garbage.root, deriver.trim()).exists());
    }
}

/// A process with a store path in its environment.
struct User(Child);

impl Drop for User {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn user(variable: &str) -> User {
    let mut cat = Command::new("cat");
    cat.env_clear().env("TOOL", variable);
    // `spawn` returns after the program has replaced the child.
    User(cat.stdin(Stdio::piped()).spawn().unwrap())
}

/// Adds a path that no other store of this machine has. In an environment, a path is a root for the
/// collections of all tests that run at the same time.
fn add_unique(store: &Store, scratch: &Scratch) -> Option<String> {
    let nix = nixes().into_iter().next()?;
    let file = scratch.join("unique");
    fs::write(&file, scratch.path().display().to_string()).unwrap();
    let added = nix.store(&store.root, ["--add".as_ref(), file.as_os_str()]);
    Some(added.trim().to_owned())
}

#[test]
fn own_environment_of_delete_keeps_no_path() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let store = Store::create(corpus, scratch.join("root"));
    let Some(path) = add_unique(&store, &scratch) else {
        return;
    };
    let command = format!("/usr/bin/floe delete {path}");
    let mut dry = floe_in(&store.root, &["delete", "--dry-run", &path]);
    run(dry.env("SUDO_COMMAND", &command)).expect(0);
    let mut why = floe_in(&store.root, &["roots", "--why", &path]);
    let why = run(why.env("SUDO_COMMAND", &command)).expect(0);
    assert_eq!(why.stdout, "");
    let mut delete = floe_in(&store.root, &["delete", &path]);
    run(delete.env("SUDO_COMMAND", &command)).expect(0);
    assert!(!place(&store.root, &path).exists());
}

#[test]
fn use_by_a_process_is_described_with_its_name() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let store = Store::create(corpus, scratch.join("root"));
    let Some(path) = add_unique(&store, &scratch) else {
        return;
    };
    let user = user(&format!("x:{path}/bin"));
    let process = format!("process {} (cat)", user.0.id());
    let described = format!("environment variable TOOL of {process}");
    let expected = format!("cannot delete {path}: the {described} keeps it; wait for");
    store.delete(&[&path]).expect(1).stderr_contains(&expected);
    let why = run(&mut floe_in(&store.root, &["roots", "--why", &path])).expect(0);
    assert_eq!(why.stdout, format!("{described}\n  -> {path}\n"));
    // The text of Nix stays.
    let printed = run(&mut floe_in(&store.root, &["gc", "--print-roots"])).expect(0);
    let line = format!("/proc/{}/environ -> {path}\n", user.0.id());
    assert!(printed.stdout.contains(&line), "{}", printed.stdout);
}

#[test]
fn process_at_the_real_place_of_a_path_keeps_it() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let store = Store::create(corpus, scratch.join("root"));
    let path = store.corpus.root.clone();
    let mut cat = Command::new("cat");
    cat.env_clear().current_dir(place(&store.root, &path));
    let user = User(cat.stdin(Stdio::piped()).spawn().unwrap());
    let expected = format!(
        "the working directory of process {} (cat) keeps it",
        user.0.id()
    );
    store.delete(&[&path]).expect(1).stderr_contains(&expected);
    drop(user);
    store.delete(&[&path]).expect(0);
}
