//! `floe ls`, `floe cat`, `floe dump`, `floe restore` and `floe log` beside Nix.

mod listings;
mod symlinks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Corpus, Nix, corpus, nixes, run};
use serde_json::Value;

use crate::support::floe;

/// The places where the closure of a corpus is: without listings, and with those of Nix.
fn places(corpus: &Corpus, scratch: &Path) -> Vec<String> {
    let mut places = vec![
        corpus.store().display().to_string(),
        corpus.file_url("zstd"),
        corpus.file_url("none"),
    ];
    if let Some(nix) = nixes().first() {
        for compression in ["none", "zstd"] {
            places.push(cache_with_listings(nix, corpus, scratch, compression));
        }
    }
    places
}

/// Lets Nix make a cache with listings, and returns its URL.
fn cache_with_listings(nix: &Nix, corpus: &Corpus, scratch: &Path, compression: &str) -> String {
    let cache = scratch.join(compression);
    let url = format!("file://{}", cache.display());
    let to = format!("{url}?compression={compression}&write-nar-listing=true");
    let store = corpus.store().display().to_string();
    let words = [
        "copy",
        "--no-check-sigs",
        "--from",
        &store,
        "--to",
        &to,
        &corpus.root,
    ];
    run(&mut nix.command("nix", words)).expect(0);
    url
}

/// The files of the root of a closure, with their names in the store.
fn files(corpus: &Corpus) -> Vec<(PathBuf, String)> {
    let tree = in_store(corpus, &corpus.root);
    let mut files = Vec::new();
    let mut left = vec![tree.clone()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                let rest = path.strip_prefix(&tree).unwrap().display().to_string();
                files.push((path, format!("{}/{rest}", corpus.root)));
            }
        }
    }
    files
}

/// Returns the file of a store path below the directory of the store.
fn in_store(corpus: &Corpus, path: &str) -> PathBuf {
    corpus.store().join(path.strip_prefix('/').unwrap())
}

/// Runs a command of floe on a place, and returns its stdout.
fn query(words: &[&str], place: &str) -> Vec<u8> {
    run(&mut from(words, place)).expect(0).stdout_bytes
}

fn from(words: &[&str], place: &str) -> Command {
    floe([words, &["--from", place]].concat())
}

#[test]
fn contents_are_those_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let files = files(&corpus);
    assert!(files.len() > 5);
    for place in places(&corpus, scratch.path()) {
        for (file, name) in &files {
            assert_eq!(
                query(&["cat", name], &place),
                fs::read(file).unwrap(),
                "{place} {name}"
            );
        }
        let all: Vec<&str> = files.iter().map(|(_, name)| name.as_str()).collect();
        let joined: Vec<u8> = files
            .iter()
            .flat_map(|(file, _)| fs::read(file).unwrap())
            .collect();
        assert_eq!(query(&[&["cat"][..], &all].concat(), &place), joined);
        for nix in nixes() {
            let words = ["store", "cat", "--store", &place, all[0]];
            let theirs = run(&mut nix.command("nix", words)).expect(0).stdout_bytes;
            assert_eq!(query(&["cat", all[0]], &place), theirs);
        }
        let directory = format!("{}/usr", corpus.root);
        run(&mut from(&["cat", &directory], &place))
            .expect(1)
            .stderr_contains("it is a directory; try floe ls");
        for absent in ["/no/such", "/usr/bin/jq/x", "/usr/zzz"] {
            let absent = format!("{}{absent}", corpus.root);
            for command in ["cat", "ls"] {
                run(&mut from(&[command, &absent], &place))
                    .expect(1)
                    .stderr_contains("the path has no such file");
            }
        }
    }
}

#[test]
fn nars_are_those_of_nix_and_unpack_to_the_same_tree() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let nar = scratch.path().join("nar");
    for (number, place) in places(&corpus, scratch.path()).iter().enumerate() {
        let ours = query(&["dump", &corpus.root], place);
        for nix in nixes() {
            let words = ["store", "dump-path", "--store", place, &corpus.root];
            let theirs = run(&mut nix.command("nix", words)).expect(0).stdout_bytes;
            assert!(ours == theirs, "{place}");
        }
        fs::write(&nar, &ours).unwrap();
        let unpacked = scratch.path().join(number.to_string());
        let mut command = floe(["restore".as_ref(), unpacked.as_os_str()]);
        run(command.stdin(fs::File::open(&nar).unwrap())).expect(0);
        let tree = in_store(&corpus, &corpus.root);
        run(Command::new("diff").arg("-r").args([&tree, &unpacked])).expect(0);
    }
}

#[test]
fn damaged_nar_is_reported_and_not_unpacked() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let cache = corpus.cache_copy("none", scratch.path());
    for nar in fs::read_dir(cache.join("nar")).unwrap() {
        let nar = nar.unwrap().path();
        let mut contents = fs::read(&nar).unwrap();
        let middle = contents.len() / 2;
        contents[middle] ^= 1;
        fs::write(&nar, &contents).unwrap();
    }
    let place = format!("file://{}", cache.display());
    let dumped = run(&mut from(&["dump", &corpus.root], &place));
    dumped.expect(3);
    let cut = &query(&["dump", &corpus.root], &corpus.file_url("none"))[..5000];
    let nar = scratch.path().join("cut");
    fs::write(&nar, cut).unwrap();
    let unpacked = scratch.path().join("unpacked");
    let mut command = floe(["restore".as_ref(), unpacked.as_os_str()]);
    run(command.stdin(fs::File::open(&nar).unwrap())).expect(3);
    assert!(!unpacked.exists());
}

#[test]
fn nar_that_ends_early_is_no_absent_file() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let cache = corpus.cache_copy("none", scratch.path());
    for nar in fs::read_dir(cache.join("nar")).unwrap() {
        let nar = fs::File::options().write(true).open(nar.unwrap().path());
        nar.unwrap().set_len(1000).unwrap();
    }
    let place = format!("file://{}", cache.display());
    let file = format!("{}/usr/share/doc/jq/README", corpus.root);
    for words in [["cat", &file], ["ls", &corpus.root], ["dump", &corpus.root]] {
        let ran = run(&mut from(&words, &place)).expect(3);
        assert!(!ran.stderr.contains("no such file"), "{}", ran.stderr);
    }
}

#[test]
fn full_disk_below_stdout_has_its_exit_code() {
    let Some(corpus) = corpus("jq") else { return };
    let (place, file) = (
        corpus.file_url("none"),
        format!("{}/usr/bin/jq", corpus.root),
    );
    for words in [
        ["cat", &file],
        ["ls", &corpus.root],
        ["dump", &corpus.root],
        ["info", &file],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let status = from(&words, &place).stdout(full).status().unwrap();
        assert_eq!(status.code(), Some(5), "{words:?}");
    }
}

/// Returns a value of JSON without the fields that versions of Nix print or omit.
fn normalised(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| {
                let optional = ["executable", "narOffset"].contains(&name.as_str());
                !(optional && (value.is_null() || **value == false || *name == "narOffset"))
            });
            Value::Object(
                kept.map(|(name, value)| (name.clone(), normalised(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}
