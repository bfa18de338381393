//! `floe add` beside `nix store add` and `nix-store --add`, into stores, caches and daemons.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Nix, nixes, run, s3_server, scratch, tree};

use crate::hashes::odd_tree;
use crate::push::floe_with_keys;
use crate::support::floe;

/// Runs `floe add`, and returns the printed paths.
fn add(words: &[&str], file: &Path, to: &str) -> String {
    let mut command = floe(["add"]);
    run(command.args(words).arg(file).args(["--to", to]))
        .expect(0)
        .stdout
}

/// Runs a command of Nix on a store, and returns its stdout.
fn nix_store(nix: &Nix, root: &Path, words: &[&str], file: &Path) -> String {
    let mut command = nix.command("nix", ["--extra-experimental-features", "nix-command"]);
    command.arg("store").args(words).arg("--store").arg(root);
    run(command.arg(file)).expect(0).stdout
}

/// The files of a test: a tree, a program, and a link.
fn files(dir: &Path) -> [PathBuf; 3] {
    let mut files = odd_tree(dir).into_iter();
    let (tree, program) = (files.next().unwrap(), files.nth(1).unwrap());
    let link = dir.join("link");
    symlink("nowhere", &link).unwrap();
    [tree, program, link]
}

#[test]
fn paths_in_local_stores_are_those_of_nix() {
    let scratch = scratch();
    let [directory, program, link] = files(scratch.path());
    for (number, nix) in nixes().iter().enumerate() {
        let (ours, theirs) = (
            scratch.join(&format!("ours-{number}")),
            scratch.join(&format!("theirs-{number}")),
        );
        let to = ours.to_str().unwrap();
        let compare = |own: &[&str], words: &[&str], file: &Path| {
            let expected = nix_store(nix, &theirs, words, file);
            assert_eq!(
                add(own, file, to),
                expected,
                "{} {words:?} {file:?}",
                nix.version
            );
        };
        for file in [&directory, &program, &link] {
            compare(&["--name", "x"], &["add-path", "--name", "x"], file);
        }
        compare(&[], &["add-path"], &program);
        compare(&["--mode", "flat"], &["add-file"], &program);
        if !nix.is_2_8() {
            for algorithm in ["md5", "sha1", "sha256", "sha512"] {
                for (mode, file) in [("nar", &directory), ("nar", &link), ("flat", &program)] {
                    let words = ["--mode", mode, "--hash-algo", algorithm, "--name", "y"];
                    compare(&words, &[&["add"], &words[..]].concat(), file);
                }
            }
            let words = ["--mode", "text", "--name", "y"];
            compare(&words, &[&["add"], &words[..]].concat(), &program);
        }
        // The names of the older program.
        let added = nix.store(&theirs, ["--add".as_ref(), program.as_os_str()]);
        assert_eq!(add(&[], &program, to), added);
        let words = ["--add-fixed", "sha1"].map(AsRef::as_ref);
        let added = nix.store(&theirs, [&words[..], &[program.as_os_str()]].concat());
        assert_eq!(
            add(&["--mode", "flat", "--hash-algo", "sha1"], &program, to),
            added
        );
        assert!(tree(&ours) == tree(&theirs), "the stores differ");
        nix.verify(&ours, 5);
        let rows = |root: &Path| {
            let text = nix.store(root, ["--dump-db"]);
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(rows(&ours), rows(&theirs));
    }
}

#[test]
fn added_paths_are_valid_behind_daemons_and_in_caches() {
    let scratch = scratch();
    let [directory, program, _] = files(scratch.path());
    for (number, nix) in nixes().iter().enumerate() {
        let expected_tree = nix_store(
            nix,
            &scratch.join("expected"),
            &["add-path", "--name", "x"],
            &directory,
        );
        let expected_file = nix_store(nix, &scratch.join("expected"), &["add-file"], &program);
        let behind = scratch.join(&format!("behind-{number}"));
        let cache = format!(
            "file://{}?compression=zstd",
            scratch.join(&format!("cache-{number}")).display()
        );
        let daemon = nix.daemon(&behind, "trusted-users =");
        for to in [&daemon.uri(), &cache] {
            for _ in 0..2 {
                assert_eq!(add(&["--name", "x"], &directory, to), expected_tree, "{to}");
                assert_eq!(
                    add(&["--mode", "flat"], &program, to),
                    expected_file,
                    "{to}"
                );
            }
        }
        nix.verify(&behind, 2);
        let mut by_name = floe(["nix-store", "--store", &daemon.uri(), "--add"]);
        let by_name = run(by_name.arg(&program)).expect(0).stdout;
        let root = scratch.join("expected");
        let expected = nix.store(&root, ["--add".as_ref(), program.as_os_str()]);
        assert_eq!(by_name, expected);
        assert_eq!(add(&[], &program, &cache), expected);
        // Content-addressed paths need no signature.
        let copied = scratch.join(&format!("copied-{number}"));
        let mut copy = nix.command(
            "nix",
            [
                "--extra-experimental-features",
                "nix-command",
                "copy",
                "--from",
            ],
        );
        copy.arg(&cache).arg("--to").arg(&copied);
        run(copy.args([&expected_tree, &expected_file, &expected].map(|it| it.trim()))).expect(0);
        nix.verify(&copied, 3);
        assert!(tree(&copied) == tree(&behind), "the stores differ");
    }
}

#[test]
fn files_are_added_to_a_bucket() {
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let [_, program, _] = files(scratch.path());
    let mut command = floe_with_keys(&server, &["add", "--to", &server.uri("team")]);
    let path = run(command.arg(&program)).expect(0).stdout;
    let hash_part = &path["/nix/store/".len()..][..32];
    let narinfo =
        fs::read_to_string(server.bucket("team").join(format!("{hash_part}.narinfo"))).unwrap();
    assert!(narinfo.contains("CA: fixed:r:sha256:"), "{narinfo}");
    let root = scratch.join("root");
    let mut install = floe_with_keys(
        &server,
        &["install", "--from", &server.uri("team"), "--root"],
    );
    run(install.arg(&root).arg(path.trim())).expect(0);
    for nix in nixes() {
        nix.verify(&root, 1);
    }
}

/// The store directory of a cache decides about the paths.
#[test]
fn paths_in_a_cache_have_its_store_directory() {
    let scratch = scratch();
    let [_, program, _] = files(scratch.path());
    let cache = format!("file://{}", scratch.join("cache").display());
    let first = add(&["--store-dir", "/other/store"], &program, &cache);
    assert!(first.starts_with("/other/store/"), "{first}");
    assert_eq!(add(&["--name", "program"], &program, &cache), first);
    let usual = add(&[], &program, scratch.join("root").to_str().unwrap());
    assert_ne!(usual[..43], first[1..44]);
}

#[test]
fn dry_run_and_refused_files_leave_no_store() {
    let scratch = scratch();
    let [directory, program, link] = files(scratch.path());
    let root = scratch.join("root");
    let add = |words: &[&str], files: &[&Path]| {
        let mut command = floe(["add", "--root"]);
        run(command.arg(&root).args(words).args(files))
    };
    let planned = add(&["--dry-run"], &[&program]).expect(0).stdout;
    assert!(planned.contains("-program "), "{planned}");
    add(&["--name", "x"], &[&program, &link])
        .expect(2)
        .stderr_contains("--name takes one file");
    add(&[], &[&program, &directory])
        .expect(1)
        .stderr_contains("try floe add --name NAME");
    add(&["--mode", "flat"], &[&link])
        .expect(1)
        .stderr_contains("it is not a regular file");
    add(&["--mode", "text", "--hash-algo", "md5"], &[&program]).expect(1);
    add(&[], &[&scratch.join("absent")])
        .expect(1)
        .stderr_contains("absent");
    run(Command::new("mkfifo").arg(directory.join("a/pipe"))).expect(0);
    add(&["--name", "x"], &[&directory])
        .expect(1)
        .stderr_contains("a/pipe");
    assert!(!root.exists());
    let json = add(
        &["--json", "-o", scratch.join("link-to-it").to_str().unwrap()],
        &[&program],
    );
    let json = json.expect(0).json();
    let path = fs::read_link(scratch.join("link-to-it")).unwrap();
    assert_eq!(json["paths"][0], path.to_str().unwrap());
    assert_eq!(json["copied"], 1);
}
