//! Which local store a command uses: `--root` and `--store` mean the same everywhere, and texts
//! that can only be mistakes are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    Corpus, NOBODY_UID, Scratch, copy_program, copy_tree, corpus, ran_in_pid_namespace, run,
    scratch,
};

use crate::support::floe;

/// A store with the closure of a corpus.
struct Fixture {
    corpus: Corpus,
    scratch: Scratch,
    root: PathBuf,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        let (corpus, scratch) = (corpus("jq")?, scratch());
        let root = scratch.join("root");
        let fixture = Fixture {
            corpus,
            scratch,
            root,
        };
        run(fixture.install().arg("--root").arg(&fixture.root)).expect(0);
        Some(fixture)
    }

    /// Returns an install of the closure without a target.
    fn install(&self) -> Command {
        let mut install = floe(["install", "--from", &self.corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &self.corpus.key, &self.corpus.root]);
        install
    }
}

#[test]
fn root_and_store_mean_the_same_in_every_command() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.root.to_str().unwrap();
    let path = &fixture.corpus.root;
    let uri = format!("local?root={root}");
    for place in [["--root", root], ["--store", root], ["--store", &uri]] {
        let info = run(floe(["info", path]).args(place)).expect(0);
        assert!(info.stdout.contains(path), "{place:?}");
        run(floe(["verify", path]).args(place)).expect(0);
        let installed = run(fixture.install().args(place).arg("--json")).expect(0);
        assert_eq!(installed.json()["copied"], 0, "{place:?}");
        let cache = format!("file://{}", fixture.scratch.join("cache").display());
        run(floe(["copy", "--to", &cache, path]).args(place)).expect(0);
        let from = ["copy", "--no-check-sigs", "--from", &cache, "--json", path];
        let copied = run(floe(from).args(place)).expect(0);
        assert_eq!(copied.json()["copied"], 0, "{place:?}");
        let both = ["copy", "--from", &cache, "--to", &cache, path];
        run(floe(both).args(place))
            .expect(2)
            .stderr_contains("leave out one of them");
    }
    run(&mut floe(["info", "--root", root, "--from", root, path])).expect(2);
}

#[test]
fn root_that_is_no_root_directory_is_refused() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.root.display();
    let inner = [format!("{root}/nix/store"), format!("{root}/nix")];
    for inner in &inner {
        let hint = format!("it is a part of the store below {root}; use {root}");
        run(fixture.install().args(["--root", inner]))
            .expect(2)
            .stderr_contains(&hint);
        run(fixture.install().args(["--to", inner]))
            .expect(2)
            .stderr_contains(&hint);
        assert!(!Path::new(inner).join("nix").exists());
    }
    let uri = "http://127.0.0.1/x";
    run(fixture
        .install()
        .args(["--root", uri])
        .current_dir(fixture.scratch.path()))
    .expect(2)
    .stderr_contains("it is a URI");
    assert!(!fixture.scratch.join("http:").exists());
}

#[test]
fn cache_in_the_root_directory_is_refused() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.root.to_str().unwrap();
    let dry_run = ["copy", "--dry-run", "--from", root, "--to", "file:///"];
    run(floe(dry_run).arg(&fixture.corpus.root))
        .expect(2)
        .stderr_contains("floe makes no cache in the root directory");
}

#[test]
fn directory_of_a_cache_as_a_store_gets_a_hint() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let cache = fixture.corpus.cache_copy("zstd", fixture.scratch.path());
    let (dir, path) = (cache.to_str().unwrap(), &*fixture.corpus.root);
    let hint = format!("it is a binary cache; use file://{dir}");
    let root = fixture.scratch.join("new").display().to_string();
    let from = format!("file://{dir}");
    for arguments in [
        &["install", "--root", &root, "--from", dir, path][..],
        &["install", "--root", dir, "--from", &from, path],
        &["install", "--store", dir, "--from", &from, path],
        &[
            "copy",
            "--no-check-sigs",
            "--from",
            &from,
            "--to",
            dir,
            path,
        ],
        &["push", "--to", "file:///absent", "--root", dir, path],
        &["info", "--root", dir, path],
        &["run", "--root", dir, path],
        &["shell", "--root", dir, path],
        &["gc", "--root", dir],
        &["list", "--root", dir],
        &["roots", "--store", dir],
        &["delete", "--root", dir, path],
        &["uninstall", "--root", dir, "jq"],
        &["optimise", "--root", dir],
        &["verify", "--root", dir],
        &["profile", "list", "--root", dir],
        &["serve", "--check", "--store", dir],
    ] {
        let ran = run(&mut floe(arguments)).expect(2);
        ran.stderr_contains(&hint);
    }
    assert!(!cache.join("nix").exists());
}

#[test]
fn copy_of_all_paths_of_an_empty_store_says_so() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let empty = fixture.scratch.join("empty").display().to_string();
    let to = format!("file://{}", fixture.scratch.join("cache").display());
    // A failed install creates the store.
    floe_store::StoreWriter::open(floe_store::StoreLayout::in_root(
        Path::new(&empty),
        floe_format::StoreDir::default(),
    ))
    .unwrap();
    run(&mut floe(["copy", "--from", &empty, "--to", &to, "--all"]))
        .expect(0)
        .stderr_contains("copied 0 paths: the source has no valid paths");
}

#[test]
fn copy_into_a_cache_counts_valid_paths() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.root.to_str().unwrap();
    let to = format!("file://{}", fixture.scratch.join("cache").display());
    let mut copy = floe(["copy", "--from", root, "--to", &to, "--all", "--json"]);
    let paths = fixture.corpus.paths.len();
    assert_eq!(run(&mut copy).expect(0).json()["alreadyValid"], 0);
    let again = run(&mut copy).expect(0).json();
    assert_eq!(
        (&again["alreadyValid"], &again["copied"]),
        (&paths.into(), &0.into())
    );
}

#[test]
fn install_of_valid_paths_needs_no_write_permission() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // The other user reads a copy of the binary, the cache and the store.
    let program = fixture.scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    let cache = fixture.scratch.join("source");
    copy_tree(&fixture.corpus.cache("zstd"), &cache);
    fs::set_permissions(fixture.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let install = |options: &[&str], path: &str| {
        let mut install = Command::new(&program);
        install.args(["install", "--from", &format!("file://{}", cache.display())]);
        install.args(["--trusted-public-keys", &fixture.corpus.key]);
        install.arg("--root").arg(&fixture.root).args(options);
        install
            .arg(path)
            .env("HOME", "/nonexistent")
            .uid(NOBODY_UID)
            .gid(NOBODY_UID);
        run(&mut install)
    };
    let root = &fixture.corpus.root;
    let ran = install(&[], root).expect(0);
    assert_eq!(ran.stdout.trim(), root);
    let link = fixture.scratch.join("link").display().to_string();
    install(&["--out-link", &link], root).expect(1);
    let absent = format!("/nix/store/{}-absent", "0".repeat(32));
    install(&[], &absent)
        .expect(1)
        .stderr_contains("ermission denied");
}
