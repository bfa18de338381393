//! `floe verify` of caches, of single paths behind daemons, and of signatures.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, Corpus, corpus, nixes, run, scratch};
use serde_json::Value;

use crate::push::{key, source_root};
use crate::support::floe;

fn verify(store: &str, args: &[&str]) -> CommandOutput {
    run(floe(["verify", "--json", "--store", store]).args(args))
}

/// Returns the kinds and paths of the problems.
fn problems(output: &CommandOutput) -> BTreeSet<(String, String)> {
    let json = output.json();
    let problems = json["problems"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    problems
        .map(|problem| (text(&problem["kind"]), text(&problem["path"])))
        .collect()
}

fn base_name(path: &str) -> String {
    path["/nix/store/".len()..].to_owned()
}

fn narinfo(cache: &Path, path: &str) -> PathBuf {
    cache.join(format!("{}.narinfo", &base_name(path)[..32]))
}

/// Returns the file of the NAR that a narinfo names.
fn nar(cache: &Path, path: &str) -> PathBuf {
    let text = fs::read_to_string(narinfo(cache, path)).unwrap();
    let url = text.lines().find_map(|line| line.strip_prefix("URL: "));
    cache.join(url.unwrap())
}

/// Changes a byte in the middle of a file.
fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

/// Returns a path of a corpus that others refer to.
fn path_like<'a>(corpus: &'a Corpus, part: &str) -> &'a str {
    let found = corpus.paths.iter().find(|path| path.contains(part));
    found.unwrap_or_else(|| panic!("the corpus has no {part}"))
}

#[test]
fn damage_in_a_cache_is_found_as_by_nix() {
    let Some(corpus) = corpus("jq") else { return };
    for compression in ["none", "zstd"] {
        let scratch = scratch();
        let cache = corpus.cache_copy(compression, &scratch.join("cache"));
        let uri = format!("file://{}", cache.display());
        let sound = verify(&uri, &[]).expect(0);
        assert_eq!(sound.json()["paths"], corpus.paths.len());
        assert_eq!(problems(&sound), BTreeSet::new());

        // All others refer to this path.
        let damaged = path_like(&corpus, "-libc6-");
        damage(&nar(&cache, damaged));
        let without_nar = path_like(&corpus, "-libonig");
        fs::remove_file(nar(&cache, without_nar)).unwrap();
        let found = verify(&uri, &["--recursive", &corpus.root]).expect(3);
        let expected = BTreeSet::from([
            ("modified".to_owned(), base_name(damaged)),
            ("unreadable".to_owned(), base_name(without_nar)),
        ]);
        assert_eq!(problems(&found), expected, "{compression}");
        // The list of the cache shows that the NAR is not there.
        let whole = problems(&verify(&uri, &[]).expect(3));
        let missing = ("missingNar".to_owned(), base_name(without_nar));
        assert!(whole.contains(&missing), "{whole:?}");
        assert!(
            whole.contains(&("modified".to_owned(), base_name(damaged))),
            "{whole:?}"
        );
        // The other paths were read: only two are missing in the sum.
        let bytes = |output: &CommandOutput| output.json()["narBytes"].as_u64().unwrap();
        assert!(bytes(&found) > 0 && bytes(&found) < bytes(&sound));
        // Only the named path is checked.
        assert_eq!(verify(&uri, &[&corpus.root]).expect(0).json()["paths"], 1);
        let metadata = problems(&verify(&uri, &["--no-contents"]).expect(3));
        assert_eq!(metadata, BTreeSet::from([missing]), "{compression}");
        for nix in nixes() {
            let args = ["store", "verify", "--no-trust", "--store", &uri, "--all"];
            let theirs = run(&mut nix.command("nix", args));
            assert_ne!(theirs.code, Some(0), "{}", nix.version);
            assert!(theirs.stderr.contains(damaged), "{}", theirs.stderr);
        }
    }
}

#[test]
fn narinfos_that_are_missing_or_damaged_are_problems() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("zstd", &scratch.join("cache"));
    let uri = format!("file://{}", cache.display());
    let (absent, damaged) = (
        path_like(&corpus, "-libc6-"),
        path_like(&corpus, "-libonig"),
    );
    fs::remove_file(narinfo(&cache, absent)).unwrap();
    fs::write(narinfo(&cache, damaged), "StorePath: x\n").unwrap();
    let found = verify(&uri, &["-r", "--no-contents", &corpus.root]).expect(3);
    let found_names: BTreeSet<String> = problems(&found).into_iter().map(|it| it.0).collect();
    assert_eq!(problems(&found).len(), 2, "{}", found.stdout);
    assert!(found_names.contains("notValid"), "{}", found.stdout);
    let text = found.stdout.clone();
    assert!(text.contains(&base_name(absent)[..32]), "{text}");
    assert!(text.contains(&base_name(damaged)[..32]), "{text}");
    let repair = run(&mut floe(["verify", "--store", &uri, "--repair"])).expect(2);
    repair.stderr_contains("try floe cache repair");
}

#[test]
fn failures_of_a_server_are_no_damage() {
    let Some(corpus) = corpus("jq") else { return };
    let server = FaultServer::start(&corpus.cache("zstd"));
    let url = server.url();
    verify(&url, &["--recursive", &corpus.root]).expect(0);
    let cache = corpus.cache("zstd");
    let file = nar(&cache, &corpus.root);
    let name = file.file_name().unwrap().to_str().unwrap();
    server.fail(name, Fault::Status(403));
    let found = verify(&url, &["--recursive", &corpus.root]).expect(4);
    let expected = ("unreadable".to_owned(), base_name(&corpus.root));
    assert_eq!(problems(&found), BTreeSet::from([expected]));
    assert!(server.fault_count() > 0);
    // A server over HTTP lists nothing.
    verify(&url, &[])
        .expect(2)
        .stderr_contains("name the paths");
}

#[test]
fn signatures_are_counted_as_by_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("zstd", &scratch.join("cache"));
    let uri = format!("file://{}", cache.display());
    let root = scratch.join("root").display().to_string();
    let (file, public) = key(&scratch);
    let both = format!("{} {public}", corpus.key);
    let mut install = floe(["install", "--from", &uri, "--root", &root]);
    run(install.args(["--trusted-public-keys", &corpus.key, &corpus.root])).expect(0);
    let check = |store: &str, needed: &str, code: i32| {
        let keys = ["--trusted-public-keys", &*both, "-n", needed];
        let ran = verify(store, &[&keys[..], &["-r", &corpus.root]].concat()).expect(code);
        for nix in nixes() {
            let args = ["store", "verify", "--no-contents", "--store", store, "-r"];
            let mut command = nix.command("nix", args);
            let theirs = run(command.args(keys).arg(&corpus.root));
            // The bit 2 stands for untrusted paths.
            let theirs = theirs.code.map_or(0, |code| code & 2);
            assert_eq!(theirs != 0, code == 3, "{} of {store}", nix.version);
        }
        problems(&ran)
    };
    for store in [&uri, &root] {
        assert!(check(store, "1", 0).is_empty());
        let refused = check(store, "2", 3);
        assert_eq!(refused.len(), corpus.paths.len());
        assert!(refused.iter().all(|(kind, _)| kind == "untrusted"));
        run(&mut floe(["sign", "-k", &file, store, "-r", &corpus.root])).expect(0);
        assert!(check(store, "2", 0).is_empty());
    }
    // A signature by a key that is not trusted does not count, and the same key counts once.
    let ran = verify(
        &root,
        &["--trusted-public-keys", &public, "--sigs-needed", "2"],
    );
    assert_eq!(problems(&ran.expect(3)).len(), corpus.paths.len());
}

#[test]
fn single_paths_behind_a_daemon_are_read() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        let from = source_root(&corpus);
        let mut copy = floe(["copy", "--no-check-sigs", "--from", &from, "--to"]);
        run(copy.arg(&root).arg(&corpus.root)).expect(0);
        let daemon = nix.daemon(&root, "");
        let uri = daemon.uri();
        let sound = verify(&uri, &["-r", &corpus.root]).expect(0);
        assert_eq!(sound.json()["paths"], corpus.paths.len());
        let damaged = path_like(&corpus, "-libonig");
        let place = crate::resume::first_file(&root.join(&damaged[1..])).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&place, mode).unwrap();
        damage(&place);
        let found = verify(&uri, &["-r", &corpus.root]).expect(3);
        let expected = ("modified".to_owned(), base_name(damaged));
        assert_eq!(problems(&found), BTreeSet::from([expected]));
        let local = verify(root.to_str().unwrap(), &["-r", &corpus.root]).expect(3);
        assert_eq!(problems(&local).len(), 1, "{}", local.stdout);
        verify(&uri, &["--repair", damaged]).expect(2);
        // A path that has grown ends the connection, and the others are read over a new one.
        let grown = path_like(&corpus, "-libc6-");
        let directory = root.join(&grown[1..]);
        fs::set_permissions(
            &directory,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        fs::write(directory.join("more"), [b'x'; 5000]).unwrap();
        let found = verify(&uri, &["-r", &corpus.root]);
        assert_eq!(problems(&found).len(), 2, "{}", found.stdout);
        assert_eq!(
            found.json()["paths"],
            corpus.paths.len(),
            "{}",
            found.stdout
        );
    }
}

/// Each path of the cache is listed, whatever its narinfo is.
#[test]
fn unusable_narinfos_of_a_whole_cache_are_problems() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("zstd", &scratch.join("cache"));
    let uri = format!("file://{}", cache.display());
    let mut paths = corpus.paths.iter();
    let mut narinfo = || narinfo(&cache, paths.next().unwrap());
    let mut damaged = Vec::new();
    for text in [
        "",
        "StorePath: /nix/store/x\n",
        "<html></html>",
        "\u{1}\u{2}",
    ] {
        let file = narinfo();
        fs::write(&file, text).unwrap();
        damaged.push(file);
    }
    let (other, file) = (narinfo(), narinfo());
    fs::copy(&other, &file).unwrap();
    damaged.push(file);
    let file = narinfo();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    damaged.push(file);
    let found = verify(&uri, &[]).expect(3);
    for file in &damaged {
        let part = file.file_stem().unwrap().to_str().unwrap().to_owned();
        // Another user may be able to read what is no damaged file.
        let kind = if file.is_dir() {
            "unreadable"
        } else {
            "damagedNarinfo"
        };
        let expected = (kind.to_owned(), part);
        assert!(
            problems(&found).contains(&expected),
            "{expected:?}: {}",
            found.stdout
        );
    }
    // The others are read.
    let read = found.json()["paths"].as_u64().unwrap();
    assert_eq!(read, (corpus.paths.len() - damaged.len()) as u64);
    // A narinfo of another store directory is no path of this cache.
    fs::write(cache.join("nix-cache-info"), "StoreDir: /other\n").unwrap();
    let found = verify(&uri, &[]).expect(3);
    assert_eq!(problems(&found).len(), corpus.paths.len());
}
