//! Store URIs on the command line, and the stores that a copy creates for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::os::unix::fs::symlink;
use std::path::Path;

use floe_format::StoreDir;
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::{corpus, run, scratch};
use serde_json::Value;

use crate::support::floe;

#[test]
fn text_that_is_no_store_uri_creates_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    for (text, advice) in [
        ("cachix:foo", "https://foo.cachix.org"),
        ("s3:bucket", "use s3://BUCKET"),
        ("ssh:host", "use ssh-ng://HOST"),
        ("unix:/sock", "use unix:///SOCKET"),
        ("https:/host", "https://host"),
        ("path:/x", "use /x"),
        ("dummy:", "use a directory"),
        ("cache.example.org", "https://cache.example.org"),
        ("nixpkgs", "./nixpkgs"),
        ("file://localhost/c", "file:///c"),
        ("file:c", "absolute path"),
        ("file://c", "absolute path"),
    ] {
        let scratch = scratch();
        run(floe(["copy", "--no-check-sigs", "--from"])
            .arg(corpus.store())
            .args(["--to", text, &corpus.root])
            .current_dir(scratch.path()))
        .expect(2)
        .stderr_contains(advice);
        let created = fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(created, 0, "{text}");
    }
}

#[test]
fn directory_of_each_spelling_becomes_a_store() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (home, current) = (scratch.join("home"), scratch.join("current"));
    fs::create_dir_all(current.join("existing")).unwrap();
    for (text, root) in [
        ("./new", current.join("new")),
        ("existing", current.join("existing")),
        ("../up", current.join("../up")),
        ("~/below", home.join("below")),
    ] {
        let copy = || {
            run(floe(["copy", "--no-check-sigs", "--from"])
                .arg(corpus.store())
                .args(["--to", text, &corpus.root])
                .env("HOME", &home)
                .current_dir(&current))
            .expect(0)
        };
        let created = format!("created {}", root.join("nix/store").display());
        copy().stderr_contains(&created);
        assert!(root.join(&corpus.root[1..]).exists(), "{text}");
        let again = copy().stderr;
        assert!(!again.contains("created"), "{text}: {again}");
        floe_store::tree::remove_tree(&root).unwrap();
    }
}

#[test]
fn file_uri_with_one_slash_is_the_cache_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = scratch.join("cache");
    let to = format!("file:{}?compression=none", cache.display());
    run(floe(["copy", "--no-check-sigs", "--from"])
        .arg(corpus.store())
        .args(["--to", &to, &corpus.root])
        .current_dir(scratch.path()))
    .expect(0)
    .stderr_contains(&format!("created file://{}", cache.display()));
    for nix in floe_testkit::nixes() {
        let from = format!("file:{}", cache.display());
        let infos = nix.path_infos(&from, &corpus.root);
        assert_eq!(infos.len(), corpus.paths.len(), "{}", nix.version);
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn parameter_without_effect_gives_one_warning() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let source = format!("{}?colour=red", corpus.file_url("zstd"));
    let ignored = "ignoring the parameter colour of file:///";
    // A substituter with an unknown parameter is used, as by Nix.
    let root = scratch.join("root");
    let ran = run(
        floe(["install", "--trusted-public-keys", &corpus.key, "--root"])
            .arg(&root)
            .args(["--option", "substituters", &source, &corpus.root]),
    )
    .expect(0);
    assert_eq!(ran.stderr.matches(ignored).count(), 1, "{}", ran.stderr);
    assert!(root.join(&corpus.root[1..]).exists());

    let cache = scratch.join("cache");
    let to = format!(
        "file://{}?compresion=none&local-nar-cache=/x",
        cache.display()
    );
    let ran = run(
        floe(["copy", "--log-format", "json", "--no-check-sigs", "--from"])
            .arg(root)
            .args(["--to", &to, &corpus.root]),
    )
    .expect(0);
    let lines = ran
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let warnings: Vec<Value> = lines
        .filter(|line: &Value| line["event"] == "warning")
        .collect();
    let messages: Vec<&str> = warnings
        .iter()
        .map(|it| it["message"].as_str().unwrap())
        .collect();
    let uri = format!("file://{}", cache.display());
    assert_eq!(
        messages,
        [
            format!(
                "ignoring the parameter compresion of {uri}: unknown parameter; use compression"
            ),
            format!("ignoring the parameter local-nar-cache of {uri}: floe does not support it"),
        ]
    );
}

#[test]
fn debug_info_index_equals_that_of_nix() {
    let scratch = scratch();
    let tree = scratch.join("tree");
    let [long, short] = ["0123456789abcdef0123456789abcdef012345", "0123456789abcdef"];
    for file in [
        format!("ab/{long}.debug"),
        format!("cd/{long}.debug"),
        format!("cd/{short}.debug"),
        format!("cd/{}.debug", long.to_uppercase()),
        format!("cd/{long}.sym"),
        format!("zz/{long}.debug"),
        format!("abc/{long}.debug"),
        format!("ef/{long}.debug/file"),
    ] {
        let file = tree.join("lib/debug/.build-id").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "debug").unwrap();
    }
    let link = tree.join(format!(
        "lib/debug/.build-id/ab/{}.debug",
        long.replace("345", "346")
    ));
    symlink(format!("{long}.debug"), link).unwrap();
    let root = scratch.join("root");
    let layout = StoreLayout::in_root(&root, StoreDir::default());
    let store = StoreWriter::open(layout).unwrap();
    let path = store
        .add_to_store(&tree, "program-debug", BTreeSet::new())
        .unwrap()
        .path;
    let path = StoreDir::default().full_path(&path);
    let cache = |name: &str| {
        let cache = scratch.join(name);
        let query = "index-debug-info=1&compression=none";
        let uri = format!("file://{}?{query}", cache.display());
        (cache.join("debuginfo"), uri)
    };
    let read = |directory: &Path| -> BTreeMap<OsString, String> {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        let read = |entry: DirEntry| (entry.file_name(), fs::read_to_string(entry.path()).unwrap());
        entries.map(read).collect()
    };
    let (directory, uri) = cache("floe");
    run(floe(["copy", "--from"])
        .arg(&root)
        .args(["--to", &uri, &path]))
    .expect(0);
    let written = read(&directory);
    assert_eq!(written.len(), 2, "{written:?}");
    for (number, nix) in floe_testkit::nixes().iter().enumerate() {
        let (directory, uri) = cache(&format!("nix-{number}"));
        run(nix
            .command("nix", ["copy", "--no-check-sigs", "--from"])
            .arg(&root)
            .args(["--to", &uri, &path]))
        .expect(0);
        assert_eq!(read(&directory), written, "{}", nix.version);
    }
}

#[test]
fn require_sigs_parameter_overrides_the_setting() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let install = |query: &str, setting: &str| {
        let to = format!("local?root={}&{query}", scratch.join(query).display());
        run(
            floe(["install", "--from", &corpus.file_url("zstd"), "--to", &to])
                .args(["--option", "trusted-public-keys", ""])
                .args(["--option", "require-sigs", setting, &corpus.root]),
        )
    };
    install("require-sigs=false", "true").expect(0);
    install("require-sigs=true", "false").expect(3);
}

#[test]
fn trusted_parameter_counts_for_install_and_not_for_copy() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let source = format!("{}?trusted=true", corpus.file_url("zstd"));
    let ignored = "ignoring the parameter trusted of file:///";
    let run_into = |name: &str, args: &[&str]| {
        let keys = ["--option", "trusted-public-keys", ""];
        run(floe(args)
            .arg("--to")
            .arg(scratch.join(name))
            .args(keys)
            .arg(&corpus.root))
    };
    let copy = ["copy", "--from", &source];
    let ran = run_into("refused", &copy).expect(3);
    assert_eq!(ran.stderr.matches(ignored).count(), 1, "{}", ran.stderr);
    for (name, args) in [
        ("unchecked", &[&copy[..], &["--no-check-sigs"]].concat()[..]),
        ("installed", &["install", "--from", &source]),
        (
            "substituted",
            &["install", "--option", "substituters", &source],
        ),
    ] {
        let ran = run_into(name, args).expect(0);
        assert!(!ran.stderr.contains(ignored), "{name}: {}", ran.stderr);
    }
}

#[test]
fn read_only_store_is_neither_written_nor_repaired() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let from = corpus.file_url("zstd");
    let install = ["install", "--no-check-sigs", "--from", &from];
    let install = |to: &str| run(floe(install).args(["--to", to, &corpus.root]));
    let read_only = format!("{}?read-only=true", root.display());
    let refusal = "leave out read-only=true";
    install(&read_only).expect(2).stderr_contains(refusal);
    assert!(!root.exists());

    install(root.to_str().unwrap()).expect(0);
    let damaged = root.join(&corpus.root[1..]);
    floe_store::tree::remove_tree(&damaged).unwrap();
    let database = fs::read(root.join("nix/var/nix/db/db.sqlite")).unwrap();
    run(&mut floe(["verify", "--store", &read_only])).expect(3);
    run(floe(["verify", "--repair", "--store", &read_only]).args(["--from", &from]))
        .expect(3)
        .stderr_contains(refusal);
    run(
        floe(["install", "--repair", "--no-check-sigs", "--from", &from]).args([
            "--to",
            &read_only,
            &corpus.root,
        ]),
    )
    .expect(2)
    .stderr_contains(refusal);
    assert!(!damaged.exists());
    assert_eq!(
        fs::read(root.join("nix/var/nix/db/db.sqlite")).unwrap(),
        database
    );
}
