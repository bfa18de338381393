//! `floe why`: its answer is what an install then does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_format::StoreDir;
use floe_testkit::{Corpus, corpus, nginx, run, scratch};
use serde_json::{Value, json};

use crate::support::floe;

/// A command about the root path of a corpus, with a store that may not exist.
fn why(corpus: &Corpus, root: &Path, caches: &[&str]) -> Command {
    let mut command = floe(["why", "--json", "--root"]);
    command.arg(root);
    for cache in caches {
        command.args(["--from", cache]);
    }
    command.arg(&corpus.root);
    command
}

/// Runs a command about one path, and returns its exit code and what it says about the path.
fn answer(command: &mut Command) -> (Option<i32>, Value) {
    let ran = run(command);
    let json = ran.json();
    let paths = json.as_object().unwrap();
    assert_eq!(paths.len(), 1, "{json}");
    (ran.code, paths.values().next().unwrap().clone())
}

/// Returns the exit code of an install with the same arguments.
fn install(corpus: &Corpus, caches: &[&str], more: &[&str]) -> Option<i32> {
    let scratch = scratch();
    let mut command = floe(["install", "--root"]);
    command.arg(scratch.join("root")).args(more);
    for cache in caches {
        command.args(["--from", cache]);
    }
    run(command.arg(&corpus.root)).code
}

fn narinfo_of(cache: &Path, path: &str) -> PathBuf {
    let path = StoreDir::default().parse(path).unwrap();
    cache.join(format!("{}.narinfo", path.hash_part()))
}

#[test]
fn trusted_path_in_a_cache_is_installable() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, url) = (scratch.join("root"), corpus.file_url("zstd"));
    let key = ["--trusted-public-keys", &*corpus.key];
    let (code, found) = answer(why(&corpus, &root, &[&url]).args(key));
    assert_eq!((code, install(&corpus, &[&url], &key)), (Some(0), Some(0)));
    assert_eq!(found["valid"], false);
    assert_eq!(found["installable"], true);
    assert_eq!(found["closure"]["toFetch"], corpus.paths.len());
    assert_eq!(found["closure"]["missing"], json!([]));
    let [cache] = found["caches"].as_array().unwrap().as_slice() else {
        panic!("{found}");
    };
    assert_eq!(cache["usable"], true);
    let signature = json!([{ "key": "corpus-1", "trusted": true, "origin": "the command line" }]);
    assert_eq!(cache["signatures"], signature);
    // The sizes are those of an install.
    let mut dry_run = floe(["install", "--dry-run", "--json", "--from", &url, "--root"]);
    let planned = run(dry_run.arg(&root).args(key).arg(&corpus.root))
        .expect(0)
        .json();
    let planned = planned["planned"].as_array().unwrap();
    for (ours, field) in [("narBytes", "narSize"), ("downloadBytes", "downloadSize")] {
        let sizes = planned.iter().map(|path| path[field].as_u64().unwrap());
        assert_eq!(found["closure"][ours], sizes.sum::<u64>(), "{ours}");
    }
    assert!(!root.exists(), "a question has made a store");
}

#[test]
fn file_and_line_of_a_trusted_key_are_named() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let conf = scratch.join("nix.conf");
    let other = "other-1:utPfebQaZNB8x2VZVu4Po03D0CBi1fpp84QkJRH4Klw=";
    let key = &corpus.key;
    let text = format!(
        "# keys\ntrusted-public-keys = {other}\nextra-trusted-public-keys = {key}\n\
         substituters = {}\n",
        corpus.file_url("none")
    );
    fs::write(&conf, text).unwrap();
    let mut command = floe(["why", "--root"]);
    command.arg(scratch.join("root")).arg(&corpus.root);
    let ran = run(command.env("NIX_USER_CONF_FILES", &conf)).expect(0);
    let line = format!("signed by corpus-1: trusted by {}:3", conf.display());
    assert!(ran.stdout.contains(&line), "{}", ran.stdout);
}

#[test]
fn refused_and_missing_paths_have_the_exit_code_of_an_install() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    // No key is trusted.
    let url = corpus.file_url("none");
    let (code, found) = answer(&mut why(&corpus, &root, &[&url]));
    assert_eq!((code, install(&corpus, &[&url], &[])), (Some(3), Some(3)));
    assert_eq!(found["installable"], false);
    let cache = &found["caches"][0];
    assert_eq!(
        (&cache["hasPath"], &cache["usable"]),
        (&json!(true), &json!(false))
    );
    assert!(
        cache["reason"]
            .as_str()
            .unwrap()
            .contains("signed by corpus-1"),
        "{cache}"
    );
    assert_eq!(cache["signatures"][0]["trusted"], false);
    // The references of a refused path are shown too.
    let missing = found["closure"]["missing"].as_array().unwrap();
    assert_eq!(missing.len(), corpus.paths.len());

    // A cache has lost a part of the closure.
    let pruned = corpus.cache_copy("none", scratch.path());
    let libc = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    fs::remove_file(narinfo_of(&pruned, libc)).unwrap();
    let pruned = format!("file://{}", pruned.display());
    let key = ["--trusted-public-keys", &*corpus.key];
    let (code, found) = answer(why(&corpus, &root, &[&pruned]).args(key));
    assert_eq!(code, install(&corpus, &[&pruned], &key));
    assert_ne!(code, Some(0));
    assert_eq!(found["caches"][0]["usable"], true);
    let [missing] = found["closure"]["missing"].as_array().unwrap().as_slice() else {
        panic!("{found}");
    };
    assert_eq!(missing["path"], libc.as_str());
    assert!(missing["neededBy"].is_string());
    // Another cache has it.
    let both = [&*pruned, &url];
    let (code, found) = answer(why(&corpus, &root, &both).args(key));
    assert_eq!((code, install(&corpus, &both, &key)), (Some(0), Some(0)));
    assert_eq!(found["caches"].as_array().unwrap().len(), 2);

    // No cache has the path at all, or none can be asked.
    let empty = scratch.join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    let empty = format!("file://{}", empty.display());
    let other = scratch.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("nix-cache-info"), "StoreDir: /other/store\n").unwrap();
    let other = format!("file://{}", other.display());
    let sets: [&[&str]; 5] = [
        &[&empty],
        &["file:///nonexistent-cache"],
        &[&other],
        &[&other, &pruned],
        &[&empty, &other],
    ];
    for caches in sets {
        let ran = run(why(&corpus, &root, caches).args(key));
        assert_eq!(
            ran.code,
            install(&corpus, caches, &key),
            "{caches:?}: {}",
            ran.stderr
        );
        assert_ne!(ran.code, Some(0), "{caches:?}: {}", ran.stdout);
        assert!(
            ran.stderr.contains("an install would fail"),
            "{}",
            ran.stderr
        );
    }
}

/// Runs `floe why` and an install of the same word into new stores. Returns both exit codes.
fn both_codes(caches: &[&str], more: &[&str], word: &str) -> [Option<i32>; 2] {
    ["why", "install"].map(|name| {
        let scratch = scratch();
        let mut command = floe([name, "--root"]);
        command.arg(scratch.join("root")).args(more);
        for cache in caches {
            command.args(["--from", cache]);
        }
        run(command.arg(word)).code
    })
}

#[test]
fn hash_parts_and_wrong_names_have_the_exit_code_of_an_install() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let key = ["--trusted-public-keys", &*corpus.key];
    let url = corpus.file_url("none");
    let path = StoreDir::default().parse(&corpus.root).unwrap();
    let hash_part = path.hash_part().to_string();
    assert_eq!(both_codes(&[&url], &key, &hash_part), [Some(0), Some(0)]);
    // A cache has the narinfo of another path under this hash part.
    let liar = corpus.cache_copy("none", scratch.path());
    let libc = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    fs::copy(narinfo_of(&liar, libc), narinfo_of(&liar, &corpus.root)).unwrap();
    let liar = format!("file://{}", liar.display());
    for caches in [&[&*liar][..], &[&liar, &url]] {
        for word in [&*hash_part, &corpus.root] {
            let [ours, theirs] = both_codes(caches, &key, word);
            assert_eq!(ours, theirs, "{caches:?} {word}");
            assert_eq!(ours == Some(0), caches.len() == 2, "{caches:?} {word}");
        }
    }
    // The user has misspelt the name.
    let codes = both_codes(&[&url], &key, &format!("{hash_part}-jqq-1.6"));
    assert_eq!(codes, [Some(1), Some(1)]);
}

/// An install makes the database of such a store.
#[test]
fn store_without_a_database_is_empty() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    fs::create_dir_all(root.join("nix/store")).unwrap();
    fs::create_dir_all(root.join("nix/var/nix/db")).unwrap();
    let url = corpus.file_url("none");
    let (code, found) =
        answer(why(&corpus, &root, &[&url]).args(["--trusted-public-keys", &corpus.key]));
    assert_eq!(code, Some(0));
    assert_eq!(found["valid"], false);
}

#[test]
fn remembered_reply_is_shown_with_the_present_one() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("none", scratch.path());
    let Some(server) = nginx(&cache, "") else {
        return;
    };
    let narinfo = narinfo_of(&cache, &corpus.root);
    let aside = scratch.join("aside");
    fs::rename(&narinfo, &aside).unwrap();
    let ask = |more: &[&str]| {
        let mut command = why(&corpus, &scratch.join("root"), &[&server.url()]);
        command
            .args(["--trusted-public-keys", &corpus.key])
            .args(more);
        answer(command.env("XDG_CACHE_HOME", scratch.join("user-cache")))
    };
    let (code, found) = ask(&[]);
    assert_eq!(
        (code, &found["caches"][0]["remembered"]),
        (Some(1), &Value::Null)
    );
    fs::rename(aside, narinfo).unwrap();
    let (code, found) = ask(&[]);
    assert_eq!(code, Some(0));
    let cache = &found["caches"][0];
    assert_eq!(cache["usable"], true);
    assert_eq!(cache["remembered"]["hasPath"], false);
    assert!(
        cache["remembered"]["at"].as_u64().unwrap() > 1_700_000_000,
        "{cache}"
    );
    let (_, found) = ask(&["--refresh"]);
    assert_eq!(found["caches"][0]["remembered"], Value::Null);
}

/// A server accepts the connection and never replies.
#[test]
fn silent_cache_does_not_keep_the_others_from_answering() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let Some(server) = nginx(&corpus.cache("none"), "") else {
        return;
    };
    let caches = [&*server.url(), &silent];
    let key = ["--trusted-public-keys", &*corpus.key];
    let (code, found) = answer(why(&corpus, &scratch.join("root"), &caches).args(key));
    assert_eq!(code, Some(0));
    let silent = found["caches"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["cache"] == silent);
    if let Some(silent) = silent {
        assert!(
            silent["reason"]
                .as_str()
                .unwrap()
                .contains("does not reply"),
            "{silent}"
        );
    }
    assert_eq!(found["closure"]["toFetch"], corpus.paths.len());
}

#[test]
fn roots_of_a_valid_path_are_named() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, url) = (scratch.join("root"), corpus.file_url("none"));
    let link = scratch.join("result");
    let mut install = floe([
        "install",
        "--trusted-public-keys",
        &corpus.key,
        "--from",
        &url,
    ]);
    run(install
        .arg("--root")
        .arg(&root)
        .arg("--out-link")
        .arg(&link)
        .arg(&corpus.root))
    .expect(0);
    let libc = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    let mut command = floe(["why", "--json", "--from", &url, "--root"]);
    let (code, found) = answer(command.arg(&root).arg(libc));
    // The path is valid, so no signature is needed.
    assert_eq!(code, Some(0));
    assert_eq!(found["valid"], true);
    let chain = found["keptBy"][0]["chain"].as_array().unwrap();
    assert_eq!(chain.first().unwrap(), corpus.root.as_str());
    assert_eq!(chain.last().unwrap(), libc.as_str());
    assert_eq!(found["caches"][0]["usable"], false);
    fs::remove_file(link).unwrap();
    let mut command = floe(["why", "--from", &url, "--root"]);
    let ran = run(command.arg(&root).arg(libc)).expect(0);
    assert!(ran.stdout.contains("no root keeps it"), "{}", ran.stdout);
}

/// An install fetches them again.
#[test]
fn valid_paths_whose_files_are_gone_are_fetched() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, url) = (scratch.join("root"), corpus.file_url("none"));
    let key = ["--trusted-public-keys", &*corpus.key];
    let mut install = floe(["install", "--from", &url, "--root"]);
    run(install.arg(&root).args(key).arg(&corpus.root)).expect(0);
    let (_, found) = answer(why(&corpus, &root, &[&url]).args(key));
    assert_eq!(found["closure"]["valid"], corpus.paths.len());
    let libc = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    floe_store::tree::remove_tree(&root.join(&libc[1..])).unwrap();
    let (code, found) = answer(why(&corpus, &root, &[&url]).args(key));
    assert_eq!((code, &found["closure"]["toFetch"]), (Some(0), &json!(1)));
    // Without a trusted key, the path is lost.
    let (code, found) = answer(&mut why(&corpus, &root, &[&url]));
    let mut install = floe(["install", "--from", &url, "--root"]);
    assert_eq!(code, run(install.arg(&root).arg(&corpus.root)).code);
    assert_eq!(found["closure"]["missing"][0]["path"], libc.as_str());
}
