//! Limits of `--reuse`: other file systems, several stores, signatures, dry runs, invalid options.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{WAYS, copy_exactly, files, shared, spoil, world};
use crate::support::{floe, run, skip};

#[test]
fn a_store_on_another_file_system_is_copied_from() {
    let Some(world) = world("jq") else { return };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() || device(memory) == device(world.scratch.path()) {
        skip(
            "a second file system",
            "/dev/shm is not on another file system",
        );
        return;
    }
    let there = tempfile::tempdir_in(memory).unwrap();
    let bare = there.path().join("store");
    copy_exactly(&world.previous.join("nix/store"), &bare);
    for way in WAYS {
        let root = world.scratch.join(way);
        let store = bare.display().to_string();
        let json = world
            .install(&root, &["--reuse", &store, "--reuse-by", way])
            .json();
        assert_eq!(json["reusedPaths"], world.corpus.paths.len());
        assert_eq!(json["downloadBytes"], 0);
        world.verify(&root);
    }
    assert!(world.fetched().is_empty());
    floe_store::tree::remove_tree(&bare).unwrap();
}

#[test]
fn what_one_store_has_wrong_comes_from_the_next() {
    let Some(world) = world("jq") else { return };
    let bare = world.bare("bare");
    for name in world.names() {
        spoil(&files(&bare.join(name))[0], |contents| contents[0] ^= 1);
    }
    let (first, second) = (
        bare.display().to_string(),
        world.previous.display().to_string(),
    );
    for way in WAYS {
        let root = world.scratch.join(way);
        let options = ["--reuse", &first, "--reuse", &second, "--reuse-by", way];
        let ran = world.install(&root, &options).says("warning");
        assert_eq!(ran.json()["reusedPaths"], world.corpus.paths.len());
        world.verify(&root);
    }
    assert!(world.fetched().is_empty());
}

#[test]
fn a_path_that_nobody_has_signed_is_not_taken_either() {
    let Some(world) = world("jq") else { return };
    let root = world.scratch.join("root");
    let store = world.previous.display().to_string();
    let stranger = "x-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let options = [
        "--reuse",
        &store,
        "--option",
        "trusted-public-keys",
        stranger,
    ];
    let from = format!("{}/cache-zstd", world.server.url());
    let mut command = floe(["install", "--from", &from, "--root"]);
    command.arg(&root).args(options).arg(&world.corpus.root);
    run(&mut command)
        .expect(3)
        .says("not signed by a trusted key");
    assert!(files(&root.join("nix/store")).is_empty());
}

#[test]
fn with_optimise_the_links_are_the_same_whichever_way_files_came() {
    let Some(world) = world("curl") else { return };
    let links = |root: &Path| {
        let entries = fs::read_dir(root.join("nix/store/.links")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<_>>()
    };
    let fetched = world.scratch.join("fetched");
    world.install(&fetched, &["--optimise"]);
    let expected = links(&fetched);
    assert!(expected.len() > 100);
    let store = world.previous.display().to_string();
    for way in WAYS {
        let root = world.scratch.join(way);
        let options = ["--optimise", "--reuse", &store, "--reuse-by", way];
        let json = world.install(&root, &options).json();
        assert_eq!(json["reusedPaths"], world.corpus.paths.len());
        assert_eq!(links(&root), expected, "{way}");
        world.verify(&root);
        let (same, _) = shared(&root.join("nix/store"), &world.previous.join("nix/store"));
        assert_eq!(same > 0, way == "hardlink", "{way}: {same}");
    }
}

#[test]
fn a_dry_run_and_a_copy_know_of_it() {
    let Some(world) = world("jq") else { return };
    let bare = world.bare("bare");
    let gone = world.names()[0];
    fs::remove_dir_all(bare.join(gone)).unwrap();
    let store = bare.display().to_string();
    let root = world.scratch.join("root");
    let json = world
        .install(&root, &["--reuse", &store, "--dry-run"])
        .json();
    let planned = json["planned"].as_array().unwrap();
    assert_eq!(planned.len(), world.corpus.paths.len());
    for path in planned {
        let is_gone = path["path"].as_str().unwrap().ends_with(gone);
        assert_eq!(path["downloadSize"] != 0, is_gone, "{path}");
    }
    assert!(!root.exists());

    // Copy from one local store to another, and reuse a third.
    let from = world.previous.display().to_string();
    let args = ["copy", "--no-check-sigs", "--json", "--from", &from, "--to"];
    let mut command = floe(args);
    command
        .arg(&root)
        .args(["--reuse", &store, &world.corpus.root]);
    let json = run(&mut command).expect(0).json();
    assert_eq!(json["copied"], world.corpus.paths.len());
    assert_eq!(json["reusedPaths"], world.corpus.paths.len() - 1);
    world.verify(&root);
}

#[test]
fn what_cannot_be_reused_is_refused_before_anything_is_fetched() {
    let Some(world) = world("jq") else { return };
    let root = world.scratch.join("root");
    for (store, why) in [
        ("https://cache.nixos.org", "--from"),
        ("file:///srv/cache", "--from"),
        ("/nonexistent/store", "neither a store nor a directory"),
    ] {
        let ran = run(&mut world.command(&root, &["--reuse", store]));
        ran.expect(2).says(why);
    }
    assert!(!root.exists());
    let cache = format!("file://{}", world.scratch.join("cache").display());
    let from = world.previous.display().to_string();
    let args = ["copy", "--from", &from, "--to", &cache, "--reuse", &from];
    run(floe(args).arg(&world.corpus.root))
        .expect(2)
        .says("--reuse");
    // `--reuse-by` without `--reuse` is an error.
    run(&mut world.command(&root, &["--reuse-by", "copy"])).expect(2);
}
