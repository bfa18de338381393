//! Limits of `--reuse`: other file systems, several stores, signatures, dry runs, invalid options.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use floe_testkit::{run, scratch_in, skip};

use super::{
    REUSE_MODES, copy_exactly, count_shared_inodes, edit_sealed_file, fixture, regular_files,
};
use crate::support::floe;

#[test]
fn store_on_another_file_system_is_copied() {
    let Some(fixture) = fixture("jq") else { return };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let here = device(fixture.scratch.path());
    let others = ["/dev/shm", env!("CARGO_TARGET_TMPDIR")].map(Path::new);
    let Some(other) = others
        .into_iter()
        .find(|it| it.is_dir() && device(it) != here)
    else {
        skip(
            "a second file system",
            "/dev/shm and the target directory are on that of the temporary files",
        );
        return;
    };
    let there = scratch_in(other);
    let bare = there.join("store");
    copy_exactly(&fixture.previous.join("nix/store"), &bare);
    for mode in REUSE_MODES {
        let root = fixture.scratch.join(mode);
        let store = bare.display().to_string();
        let json = fixture
            .install(&root, &["--reuse", &store, "--reuse-by", mode])
            .json();
        assert_eq!(json["reusedPaths"], fixture.corpus.paths.len());
        assert_eq!(json["downloadBytes"], 0);
        fixture.verify(&root);
    }
    assert!(fixture.fetched_names().is_empty());
}

#[test]
fn path_damaged_in_one_store_is_reused_from_the_next() {
    let Some(fixture) = fixture("jq") else { return };
    let bare = fixture.bare_directory("bare");
    for name in fixture.names() {
        edit_sealed_file(&regular_files(&bare.join(name))[0], |contents| {
            contents[0] ^= 1
        });
    }
    let (first, second) = (
        bare.display().to_string(),
        fixture.previous.display().to_string(),
    );
    for mode in REUSE_MODES {
        let root = fixture.scratch.join(mode);
        let options = ["--reuse", &first, "--reuse", &second, "--reuse-by", mode];
        let ran = fixture.install(&root, &options).stderr_contains("warning");
        assert_eq!(ran.json()["reusedPaths"], fixture.corpus.paths.len());
        fixture.verify(&root);
    }
    assert!(fixture.fetched_names().is_empty());
}

#[test]
fn unsigned_path_is_not_reused() {
    let Some(fixture) = fixture("jq") else { return };
    let root = fixture.scratch.join("root");
    let store = fixture.previous.display().to_string();
    let stranger = "x-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let options = [
        "--reuse",
        &store,
        "--option",
        "trusted-public-keys",
        stranger,
    ];
    let from = format!("{}/cache-zstd", fixture.server.url());
    let mut command = floe(["install", "--from", &from, "--root"]);
    command.arg(&root).args(options).arg(&fixture.corpus.root);
    run(&mut command).expect(3).stderr_contains("cannot trust");
    assert!(!root.exists(), "the refused install left a store");
}

#[test]
fn reuse_with_optimise_creates_the_same_links() {
    let Some(fixture) = fixture("curl") else {
        return;
    };
    let links = |root: &Path| {
        let entries = fs::read_dir(root.join("nix/store/.links")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<_>>()
    };
    let fetched = fixture.scratch.join("fetched");
    fixture.install(&fetched, &["--optimise"]);
    let expected = links(&fetched);
    assert!(expected.len() > 100);
    let store = fixture.previous.display().to_string();
    for mode in REUSE_MODES {
        let root = fixture.scratch.join(mode);
        let options = ["--optimise", "--reuse", &store, "--reuse-by", mode];
        let json = fixture.install(&root, &options).json();
        assert_eq!(json["reusedPaths"], fixture.corpus.paths.len());
        assert_eq!(links(&root), expected, "{mode}");
        fixture.verify(&root);
        let (same, _) =
            count_shared_inodes(&root.join("nix/store"), &fixture.previous.join("nix/store"));
        assert_eq!(same > 0, mode == "hardlink", "{mode}: {same}");
    }
}

#[test]
fn dry_run_and_copy_support_reuse() {
    let Some(fixture) = fixture("jq") else { return };
    let bare = fixture.bare_directory("bare");
    let gone = fixture.names()[0];
    fs::remove_dir_all(bare.join(gone)).unwrap();
    let store = bare.display().to_string();
    let root = fixture.scratch.join("root");
    let json = fixture
        .install(&root, &["--reuse", &store, "--dry-run"])
        .json();
    let planned = json["planned"].as_array().unwrap();
    assert_eq!(planned.len(), fixture.corpus.paths.len());
    for path in planned {
        let is_gone = path["path"].as_str().unwrap().ends_with(gone);
        assert_eq!(path["downloadSize"] != 0, is_gone, "{path}");
    }
    assert!(!root.exists());

    // Copy from one local store to another, and reuse a third.
    let from = fixture.previous.display().to_string();
    let args = ["copy", "--no-check-sigs", "--json", "--from", &from, "--to"];
    let mut command = floe(args);
    command
        .arg(&root)
        .args(["--reuse", &store, &fixture.corpus.root]);
    let json = run(&mut command).expect(0).json();
    assert_eq!(json["copied"], fixture.corpus.paths.len());
    assert_eq!(json["reusedPaths"], fixture.corpus.paths.len() - 1);
    fixture.verify(&root);
}

#[test]
fn unusable_reuse_store_is_rejected_before_fetching() {
    let Some(fixture) = fixture("jq") else { return };
    let root = fixture.scratch.join("root");
    for (store, why) in [
        ("https://cache.nixos.org", "--from"),
        ("file:///srv/cache", "--from"),
        ("/nonexistent/store", "neither a store nor a directory"),
    ] {
        let ran = run(&mut fixture.command(&root, &["--reuse", store]));
        ran.expect(2).stderr_contains(why);
    }
    assert!(!root.exists());
    let cache = format!("file://{}", fixture.scratch.join("cache").display());
    let from = fixture.previous.display().to_string();
    let args = ["copy", "--from", &from, "--to", &cache, "--reuse", &from];
    run(floe(args).arg(&fixture.corpus.root))
        .expect(2)
        .stderr_contains("optimise or reuse");
    // `--reuse-by` without `--reuse` is an error.
    run(&mut fixture.command(&root, &["--reuse-by", "copy"])).expect(2);
}
