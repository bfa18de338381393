//! Copies that fail before the first path is valid. They leave no new store and no new cache.

use std::fs;

use floe_testkit::{corpus, run, scratch};

use crate::support::floe;

#[test]
fn refused_install_leaves_no_new_store() {
    let Some(corpus) = corpus("jq") else { return };
    let from = corpus.file_url("zstd");
    let absent = format!("/nix/store/{}-absent", "0".repeat(32));
    // No trusted signature, and no such path.
    for (path, code) in [(&corpus.root, 3), (&absent, 1)] {
        let scratch = scratch();
        let root = scratch.join("deep/root");
        let mut command = floe(["install", "--from", &from, "--root"]);
        let ran = run(command.arg(&root).arg(path)).expect(code);
        assert!(!ran.stderr.contains("created"), "{}", ran.stderr);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "{path}");
    }
}

#[test]
fn refused_install_leaves_existing_store_alone() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let from = corpus.file_url("zstd");
    let install = |path: &str| {
        let mut command = floe(["install", "--no-check-sigs", "--from", &from, "--root"]);
        run(command.arg(&root).arg(path))
    };
    install(&corpus.root).expect(0).stderr_contains("created");
    install(&format!("{}-absent", "0".repeat(32))).expect(1);
    assert!(root.join(&corpus.root[1..]).exists());
    assert!(root.join("nix/var/nix/db/db.sqlite").exists());
}

#[test]
fn refused_copy_leaves_no_new_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let to = format!("file://{}", scratch.join("cache").display());
    let from = corpus.file_url("zstd");
    let absent = "0".repeat(32);
    let mut command = floe(["copy", "--from", &from, "--to", &to, &absent]);
    let ran = run(&mut command).expect(1);
    assert!(!ran.stderr.contains("created"), "{}", ran.stderr);
    assert!(!scratch.join("cache").exists());
}
