//! Store URIs on the command line, and the stores that a copy creates for them.

use std::fs;

use floe_testkit::{corpus, run, scratch};
use serde_json::Value;

use crate::support::floe;

#[test]
fn text_that_is_no_store_uri_creates_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    for (text, advice) in [
        ("cachix:foo", "https://foo.cachix.org"),
        ("s3:bucket", "object stores yet"),
        ("ssh:host", "SSH yet"),
        ("unix:/sock", "Nix daemon yet"),
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
