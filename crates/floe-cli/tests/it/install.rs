//! `floe install`: the resulting store equals the one that Nix makes, and Nix can use it.

use std::fs;

use floe_testkit::{
    Corpus, corpora, corpus, nginx, nixes, ran_in_pid_namespace, run, scratch, tree,
};

use crate::support::floe;

/// Installs a corpus and asserts success.
#[track_caller]
fn install(corpus: &Corpus, from: &str, root: &std::path::Path) -> floe_testkit::CommandOutput {
    let ran = run(floe([
        "install",
        "--from",
        from,
        "--trusted-public-keys",
        &corpus.key,
    ])
    .arg("--root")
    .arg(root)
    .args(["--json", &corpus.root]))
    .expect(0);
    assert_eq!(ran.json()["copied"], corpus.paths.len());
    ran
}

#[test]
fn install_from_any_cache_equals_nix_copy() {
    let nixes = nixes();
    let mut compared = 0;
    for corpus in corpora() {
        let Some(server) = nginx(&corpus.dir, "") else {
            return;
        };
        for nix in &nixes {
            let scratch = scratch();
            let by_nix = scratch.join("by-nix");
            run(nix
                .command(
                    "nix",
                    [
                        "copy",
                        "--no-check-sigs",
                        "--from",
                        &corpus.file_url("zstd"),
                    ],
                )
                .arg("--to")
                .arg(&by_nix)
                .arg(&corpus.root))
            .expect(0);
            let expected_tree = tree(&by_nix);
            let expected = nix.path_infos(&by_nix.display().to_string(), &corpus.root);
            assert_eq!(expected.len(), corpus.paths.len());
            for compression in ["none", "zstd", "xz"] {
                let http = format!("{}/cache-{compression}", server.url());
                for (way, from) in [("http", http), ("file", corpus.file_url(compression))] {
                    let root = scratch.join(&format!("{way}-{compression}"));
                    install(&corpus, &from, &root);
                    nix.verify(&root, corpus.paths.len());
                    let store = root.display().to_string();
                    assert_eq!(
                        nix.path_infos(&store, &corpus.root),
                        expected,
                        "{way} {compression}"
                    );
                    assert!(
                        tree(&root) == expected_tree,
                        "{way} {compression}: the trees differ"
                    );
                    compared += 1;
                }
            }
        }
        if !nixes.is_empty() {
            let log = server.log();
            for path in &corpus.paths {
                let part = path
                    .strip_prefix("/nix/store/")
                    .unwrap()
                    .split('-')
                    .next()
                    .unwrap();
                assert!(
                    log.contains(&format!("{part}.narinfo")),
                    "no request for {path}"
                );
            }
        }
    }
    assert!(compared > 0 || nixes.is_empty(), "no store was compared");
}

#[test]
fn nix_can_optimise_export_delete_and_collect_installed_store() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("curl") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &corpus.file_url("zstd"), &root);
        let paths = corpus.paths.len();

        nix.store(&root, ["--optimise"]);
        nix.verify(&root, paths);
        let verified = run(floe(["verify", "--json", "--root"]).arg(&root))
            .expect(0)
            .json();
        assert_eq!(verified["paths"], paths);
        assert!(
            verified["links"].as_u64().unwrap() > 0,
            "no file was linked: {verified}"
        );

        let export = run(nix
            .command("nix-store", ["--store"])
            .arg(&root)
            .args(["--export", &corpus.root]))
        .expect(0);
        assert!(export.stdout.len() > 1000, "the export is empty");

        let requisites = nix.store(&root, ["-qR", &corpus.root]);
        assert_eq!(requisites.lines().count(), paths);
        let referred = corpus
            .paths
            .iter()
            .find(|path| **path != corpus.root)
            .unwrap();
        run(nix
            .command("nix-store", ["--store"])
            .arg(&root)
            .args(["--delete", referred]))
        .expect(1)
        .stderr_contains("still alive");

        nix.store(&root, ["--delete", &corpus.root]);
        assert!(!root.join(&corpus.root[1..]).exists());
        nix.verify(&root, paths - 1);
        // floe fetches exactly the path that Nix deleted.
        let again = run(
            floe(["install", "--from", &corpus.file_url("zstd"), "--json"])
                .args(["--trusted-public-keys", &corpus.key, "--root"])
                .arg(&root)
                .arg(&corpus.root),
        )
        .expect(0)
        .json();
        assert_eq!(
            (&again["copied"], &again["alreadyValid"]),
            (&1.into(), &(paths - 1).into())
        );
        nix.verify(&root, paths);

        nix.store(&root, ["--gc"]);
        nix.verify(&root, 0);
        assert!(
            !root.join(&corpus.root[1..]).exists(),
            "the path was not collected"
        );
        assert_eq!(
            fs::read_dir(root.join("nix/var/nix/temproots"))
                .unwrap()
                .count(),
            0
        );
    }
}

#[test]
fn second_install_fetches_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    let from = format!("{}/cache-xz", server.url());
    install(&corpus, &from, &root);
    let asked = server.log().lines().count();
    let again = run(floe(["install", "--from", &from, "--json", "--root"])
        .arg(&root)
        .args(["--trusted-public-keys", &corpus.key, &corpus.root]))
    .expect(0)
    .json();
    assert_eq!(again["copied"], 0);
    assert_eq!(again["alreadyValid"], corpus.paths.len());
    let requests: Vec<String> = server
        .log()
        .lines()
        .skip(asked)
        .map(str::to_owned)
        .collect();
    assert!(requests.is_empty(), "{requests:?}");
}

#[test]
fn path_spec_accepts_full_path_base_name_hash_part_and_file() {
    let Some(corpus) = corpus("jq") else { return };
    let base = corpus.root.strip_prefix("/nix/store/").unwrap();
    let hash = base.split('-').next().unwrap();
    let file = format!("{}/usr/bin/jq", corpus.root);
    for name in [corpus.root.as_str(), base, hash, &file] {
        let scratch = scratch();
        let ran = run(
            floe(["install", "--from", &corpus.file_url("zstd"), "--root"])
                .arg(scratch.join("root"))
                .args(["--trusted-public-keys", &corpus.key, name]),
        )
        .expect(0);
        assert_eq!(ran.stdout.trim(), corpus.root, "{name}");
    }
    let scratch = scratch();
    run(
        floe(["install", "--from", &corpus.file_url("zstd"), "--root"])
            .arg(scratch.join("root"))
            .arg("not a path"),
    )
    .expect(2)
    .stderr_contains("as a store path");
}

#[test]
fn dry_run_lists_every_path_and_writes_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let ran = run(floe([
        "install",
        "--dry-run",
        "--from",
        &corpus.file_url("xz"),
        "--root",
    ])
    .arg(&root)
    .args(["--trusted-public-keys", &corpus.key, &corpus.root]))
    .expect(0);
    let mut named: Vec<&str> = ran
        .stdout
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    named.sort_unstable();
    let mut expected: Vec<&str> = corpus.paths.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(named, expected);
    assert!(!root.exists(), "the dry run created {}", root.display());
}

#[test]
fn install_without_trusted_key_is_rejected() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let command = || {
        let mut command = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
        command.arg(&root);
        command
    };
    run(command().arg(&corpus.root))
        .expect(3)
        .stderr_contains("cannot trust")
        .stderr_contains("corpus-1");
    assert!(!root.exists(), "the refused install left a store");
    run(command().args(["--no-check-sigs", &corpus.root])).expect(0);
    // Keys may extend the default keys or replace them, one by one or as a list.
    for flag in [
        "--extra-trusted-public-keys",
        "--trusted-public-key",
        "--trusted-public-keys",
    ] {
        let root = scratch.join(flag);
        run(
            floe(["install", "--from", &corpus.file_url("zstd"), "--root"])
                .arg(&root)
                .args([flag, &corpus.key, &corpus.root]),
        )
        .expect(0);
    }
}

#[test]
fn link_into_store_names_its_path_in_every_command() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let from = corpus.file_url("zstd");
    let (root, cache) = (scratch.join("root"), scratch.join("cache"));
    std::os::unix::fs::symlink(&corpus.root, scratch.join("result")).unwrap();
    let in_scratch = |args: &[&str]| {
        let mut command = floe(args);
        command.current_dir(scratch.path());
        run(&mut command)
    };
    let (root, to) = (
        root.to_str().unwrap(),
        format!("file://{}", cache.display()),
    );
    let key = ["--trusted-public-keys", &corpus.key];
    let install = ["install", "--from", &from, "--root", root, key[0], key[1]];
    let ran = in_scratch(&[&install[..], &["./result"]].concat()).expect(0);
    assert_eq!(ran.stdout.trim(), corpus.root);
    in_scratch(&["verify", "--root", root, "./result"])
        .expect(0)
        .stderr_contains("verified 1 path");
    let ran = in_scratch(&["info", "--from", root, "./result/"]).expect(0);
    assert!(ran.stdout.contains(&corpus.root), "{}", ran.stdout);
    let link = scratch.join("result").display().to_string();
    let ran = in_scratch(&["copy", "--from", root, "--to", &to, &link]).expect(0);
    assert_eq!(ran.stdout.trim(), corpus.root);
    // The last one is not a base name, so it can only be a file.
    for text in [
        "./result/bin/jq",
        &format!("{root}{}/bin", corpus.root),
        "result",
    ] {
        let ran = in_scratch(&[&install[..], &[text]].concat()).expect(0);
        assert_eq!(ran.stdout.trim(), corpus.root, "{text}");
    }
    for (text, says) in [
        ("hello", "floe does not evaluate"),
        ("nixpkgs#hello", "floe does not evaluate"),
        ("./absent", "there is no such file"),
        ("/etc", "it is not in /nix/store"),
    ] {
        in_scratch(&[&install[..], &[text]].concat())
            .expect(2)
            .stderr_contains(says);
    }
}
