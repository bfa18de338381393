//! Databases that have lost their rows or belong to another program. A collection that took such a
//! store for an empty one would delete all of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use floe_testkit::{Corpus, Scratch, corpus, nixes, ran_in_pid_namespace, run, scratch};
use rusqlite::Connection;

use super::{floe_in, gc, install, names};
use crate::support::floe;

/// A store with a root, whose database is replaced.
struct Damaged {
    corpus: Corpus,
    scratch: Scratch,
}

impl Damaged {
    fn new() -> Option<Damaged> {
        let corpus = corpus("jq")?;
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root);
        let roots = root.join("nix/var/nix/gcroots");
        symlink(&corpus.root, roots.join("kept")).unwrap();
        let profiles = root.join("nix/var/nix/profiles");
        for number in [1, 2] {
            symlink(&corpus.root, profiles.join(format!("p-{number}-link"))).unwrap();
        }
        symlink("p-2-link", profiles.join("p")).unwrap();
        for side in ["-wal", "-shm"] {
            let _ = fs::remove_file(database(&root).with_extension(format!("sqlite{side}")));
        }
        Some(Damaged { corpus, scratch })
    }

    fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    /// Runs all commands that must refuse the store. None of them changes it.
    fn assert_refused(&self, reason: &str) {
        let root = self.root();
        let before = names(&root.join("nix/store"));
        let profiles = names(&root.join("nix/var/nix/profiles"));
        let content = fs::read(database(&root)).unwrap();
        let path = &*self.corpus.root;
        for arguments in [
            &["gc"][..],
            &["gc", "--dry-run"],
            &["gc", "--ignore-unregistered-roots"],
            &["gc", "--keep-generations", "1"],
            &["gc", "--delete-older-than", "1d"],
            &["delete", path],
            &["delete", "--ignore-liveness", path],
            &["optimise"],
            &["optimise", "--dry-run"],
            &["list"],
            &["list", "--all"],
            &["roots"],
            &["verify"],
            &["info", path],
            &["info", "--all"],
        ] {
            let ran = run(&mut floe_in(&root, arguments));
            assert_ne!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
            assert!(ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
        }
        assert_eq!(names(&root.join("nix/store")), before);
        assert_eq!(names(&root.join("nix/var/nix/profiles")), profiles);
        assert_eq!(fs::read(database(&root)).unwrap(), content);
    }
}

fn database(root: &Path) -> PathBuf {
    root.join("nix/var/nix/db/db.sqlite")
}

#[test]
fn emptied_database_is_refused_until_it_is_repaired() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(damaged) = Damaged::new() else {
        return;
    };
    let root = damaged.root();
    fs::write(database(&root), "").unwrap();
    damaged.assert_refused("it has no tables");
    for nix in nixes() {
        let mut collect = nix.command("nix-store", ["--store"]);
        let ran = run(collect.arg(&root).arg("--gc"));
        assert_ne!(ran.code, Some(0), "{}", nix.version);
    }
    let paths = damaged.corpus.paths.len();
    run(&mut floe_in(&root, &["verify", "--repair"]))
        .expect(0)
        .stderr_contains(&format!(
            "{paths} paths of the store are not registered any more"
        ));
    // The root wins over the missing row.
    let before = names(&root.join("nix/store"));
    for arguments in [&[][..], &["--dry-run"], &["--keep-generations", "1"]] {
        let ran = gc(&root, arguments).expect(1);
        assert!(ran.stderr.contains("not in the database"), "{}", ran.stderr);
        assert!(ran.stderr.contains("gcroots/kept"), "{}", ran.stderr);
    }
    run(&mut floe_in(&root, &["delete", &damaged.corpus.root])).expect(1);
    assert_eq!(names(&root.join("nix/store")), before);
    assert!(fs::read_link(root.join("nix/var/nix/profiles/p-1-link")).is_ok());
    install(&damaged.corpus, &root);
    gc(&root, &[]).expect(0);
    for nix in nixes() {
        nix.verify(&root, paths);
    }
}

#[test]
fn lost_rows_are_deleted_only_on_request() {
    let Some(damaged) = Damaged::new() else {
        return;
    };
    let root = damaged.root();
    let connection = Connection::open(database(&root)).unwrap();
    connection
        .execute_batch("pragma foreign_keys = off; delete from ValidPaths")
        .unwrap();
    drop(connection);
    gc(&root, &[])
        .expect(1)
        .stderr_contains("--ignore-unregistered-roots");
    gc(&root, &["--ignore-unregistered-roots"]).expect(0);
    assert_eq!(names(&root.join("nix/store")), [".links".to_owned()].into());
}

/// A root leads to a path, a collection has deleted it, and a process fetches it again: the files
/// come before the row.
#[test]
fn path_that_a_process_adds_is_not_lost() {
    let Some(damaged) = Damaged::new() else {
        return;
    };
    let (root, path) = (damaged.root(), &damaged.corpus.root);
    let connection = Connection::open(database(&root)).unwrap();
    let deleted = connection.execute("delete from ValidPaths where path = ?1", [path]);
    assert_eq!(deleted.unwrap(), 1);
    drop(connection);
    gc(&root, &[]).expect(1).stderr_contains("gcroots/kept");

    let live = format!("nix/var/nix/temproots/{}-live", std::process::id());
    fs::write(root.join(&live), format!("{path}\0")).unwrap();
    let file = fs::File::open(root.join(&live)).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for arguments in [&["--dry-run"][..], &["--keep-generations", "1"], &[]] {
        gc(&root, arguments).expect(0);
    }
    let files = root.join(path.trim_start_matches('/'));
    assert!(files.exists());
    drop(file);
    gc(&root, &[]).expect(1).stderr_contains("gcroots/kept");
    assert!(files.exists());
}

#[test]
fn database_of_another_program_is_refused_by_all_commands() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(damaged) = Damaged::new() else {
        return;
    };
    let root = damaged.root();
    fs::remove_file(database(&root)).unwrap();
    let connection = Connection::open(database(&root)).unwrap();
    connection
        .execute_batch("create table moz_places (id integer)")
        .unwrap();
    drop(connection);
    damaged.assert_refused("it belongs to another program");
    let before = fs::read(database(&root)).unwrap();
    let mut install = floe(["install", "--from", &damaged.corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &damaged.corpus.key, "--root"]);
    install.arg(&root).arg(&damaged.corpus.root);
    for mut command in [install, floe_in(&root, &["verify", "--repair"])] {
        run(&mut command)
            .expect(1)
            .stderr_contains("it belongs to another program");
    }
    assert_eq!(fs::read(database(&root)).unwrap(), before);
}
