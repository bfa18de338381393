//! `floe copy` between stores and caches, with real Nix at either end.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use floe_testkit::{corpora, corpus, nginx, nixes, run, scratch, tree};

use crate::support::floe;

#[test]
fn local_copy_equals_its_source() {
    let nixes = nixes();
    for corpus in corpora() {
        let scratch = scratch();
        let root = scratch.join("root");
        run(floe(["copy", "--from"])
            .arg(corpus.store())
            .arg("--to")
            .arg(&root)
            .args(["--no-check-sigs", &corpus.root]))
        .expect(0);
        assert!(tree(&root) == tree(&corpus.store()), "the trees differ");
        for nix in &nixes {
            nix.verify(&root, corpus.paths.len());
            assert_eq!(
                nix.path_infos(&root.display().to_string(), &corpus.root),
                nix.path_infos(&corpus.store().display().to_string(), &corpus.root),
            );
        }
    }
}

#[test]
fn real_place_in_source_stands_for_the_path() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let real = format!("{}{}", corpus.store().display(), corpus.root);
    let link = scratch.join("link");
    symlink(&real, &link).unwrap();
    for (number, named) in [&*real, link.to_str().unwrap()].iter().enumerate() {
        let root = scratch.join(&number.to_string());
        let mut copy = floe(["copy", "--no-check-sigs", "--from"]);
        copy.arg(corpus.store()).arg("--to").arg(&root);
        let copied = run(copy.arg(named)).expect(0);
        assert_eq!(copied.stdout, format!("{}\n", corpus.root));
    }
    // A file elsewhere is not a package.
    symlink("/etc", scratch.join("elsewhere")).unwrap();
    let mut copy = floe(["copy", "--from"]);
    copy.arg(corpus.store())
        .arg("--to")
        .arg(scratch.join("other"));
    let refused = run(copy.arg("elsewhere").current_dir(scratch.path())).expect(2);
    assert!(!refused.stderr.contains("nix eval"), "{}", refused.stderr);
}

#[test]
fn local_copy_requires_signatures() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    run(floe(["copy", "--from"])
        .arg(corpus.store())
        .arg("--to")
        .arg(scratch.join("root"))
        .arg(&corpus.root))
    .expect(3)
    .stderr_contains("cannot trust");
    // The remedy is the same for all paths.
    let mut copy_all = floe(["copy", "--all", "--from"]);
    copy_all.arg(corpus.store()).arg("--to");
    let refused = run(copy_all.arg(scratch.join("root"))).expect(3);
    let count = refused.stderr.matches("cannot trust").count();
    assert_eq!(count, 1, "{}", refused.stderr);
    refused.stderr_contains("more failures for the same causes");
}

#[test]
fn new_cache_info_has_mass_query_and_priority_of_its_uri() {
    let nixes = nixes();
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    for (name, parameters, fields) in [
        ("plain", "", "WantMassQuery: 1\n"),
        (
            "priority",
            "&priority=30",
            "WantMassQuery: 1\nPriority: 30\n",
        ),
        (
            "few",
            "&want-mass-query=false&priority=-1",
            "Priority: -1\n",
        ),
    ] {
        let cache = scratch.join(name);
        let uri = format!("file://{}", cache.display());
        let copy = |parameters: &str| {
            let to = format!("{uri}?compression=none{parameters}");
            let mut command = floe(["copy", "--to", &to, &corpus.root, "--from"]);
            run(command.arg(corpus.store())).expect(0);
            fs::read_to_string(cache.join("nix-cache-info")).unwrap()
        };
        let info = format!("StoreDir: /nix/store\n{fields}");
        assert_eq!(copy(parameters), info);
        assert_eq!(copy("&priority=99"), info, "a cache keeps its description");
        for nix in &nixes {
            let infos = nix.path_infos(&uri, &corpus.root);
            assert_eq!(infos.len(), corpus.paths.len(), "{}", nix.version);
        }
    }
}

#[test]
fn nix_installs_from_a_signed_cache_written_by_floe() {
    let nixes = nixes();
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    for compression in ["none", "zstd", "xz", "bzip2", "gzip", "br", "lz4"] {
        let scratch = scratch();
        let cache = scratch.join("cache");
        let secret = scratch.join("secret");
        let secret_key = run(&mut floe(["key", "generate", "floe-test-1"]))
            .expect(0)
            .stdout;
        fs::write(&secret, &secret_key).unwrap();
        let to = format!(
            "file://{}?compression={compression}&secret-key={}&write-nar-listing=true",
            cache.display(),
            secret.display()
        );
        // Use an HTTP source, so that this copies from a cache into a cache.
        let from = format!("{}/cache-zstd", server.url());
        run(&mut floe([
            "copy",
            "--from",
            &from,
            "--to",
            &to,
            &corpus.root,
        ]))
        .expect(0);
        let listed = fs::read_dir(&cache).unwrap().filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|extension| extension == "ls")
        });
        assert_eq!(listed.count(), corpus.paths.len());

        let key = run(floe(["key", "public"]).stdin(fs::File::open(&secret).unwrap()))
            .expect(0)
            .stdout;
        let from = format!("file://{}", cache.display());
        let root = scratch.join("by-floe");
        run(floe([
            "install",
            "--from",
            &from,
            "--trusted-public-keys",
            key.trim(),
            "--root",
        ])
        .arg(&root)
        .arg(&corpus.root))
        .expect(0);
        assert!(
            tree(&root) == tree(&corpus.store()),
            "{compression}: the trees differ"
        );

        for nix in &nixes {
            // Nix 2.8 fails on `br` and `gzip` NARs: it expects curl to have decompressed them.
            let by_nix = scratch.join("by-nix");
            let copy = |keys: &str| {
                let mut command = nix.command("nix", ["copy", "--from", &from, "--to"]);
                command
                    .arg(&by_nix)
                    .args(["--option", "trusted-public-keys", keys, &corpus.root]);
                command
            };
            let wrong = "other-1:6NCHdD59X431o0gWypbMrAURkbJ16ZPMQFGspcDShjY=";
            run(&mut copy(wrong)).expect(1).stderr_contains("signature");
            run(&mut copy(key.trim())).expect(0);
            nix.verify(&by_nix, corpus.paths.len());
            assert!(
                tree(&by_nix) == tree(&root),
                "{} {compression}: the trees differ",
                nix.version
            );
            floe_store::tree::remove_tree(&by_nix).unwrap();
        }
    }
}

#[test]
fn nar_listings_equal_those_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
        let url = |dir: &std::path::Path| {
            format!(
                "file://{}?compression=none&write-nar-listing=true",
                dir.display()
            )
        };
        run(floe(["copy", "--from"])
            .arg(corpus.store())
            .args(["--to", &url(&ours), &corpus.root]))
        .expect(0);
        run(nix
            .command("nix", ["copy", "--no-check-sigs", "--from"])
            .arg(corpus.store())
            .args(["--to", &url(&theirs), &corpus.root]))
        .expect(0);
        let mut compared = 0;
        for entry in fs::read_dir(&theirs).unwrap() {
            let name = entry.unwrap().file_name();
            if name.to_string_lossy().ends_with(".ls") {
                let read = |dir: &std::path::Path| -> serde_json::Value {
                    serde_json::from_slice(&fs::read(dir.join(&name)).unwrap()).unwrap()
                };
                assert_eq!(read(&ours), read(&theirs), "{} {name:?}", nix.version);
                compared += 1;
            }
        }
        assert_eq!(compared, corpus.paths.len(), "{}", nix.version);
        // Uncompressed NARs are deterministic, so both caches contain the same NAR files.
        let nars = |dir: &std::path::Path| -> BTreeSet<_> {
            let nars = fs::read_dir(dir.join("nar")).unwrap();
            nars.map(|entry| entry.unwrap().file_name()).collect()
        };
        assert_eq!(nars(&ours), nars(&theirs), "{}", nix.version);
    }
}

#[test]
fn floe_adds_paths_to_a_store_written_by_nix() {
    let Some(jq) = corpus("jq") else { return };
    let Some(curl) = corpus("curl") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        run(nix
            .command(
                "nix",
                [
                    "copy",
                    "--no-check-sigs",
                    "--from",
                    &jq.file_url("zstd"),
                    "--to",
                ],
            )
            .arg(&root)
            .arg(&jq.root))
        .expect(0);
        run(
            floe(["install", "--from", &curl.file_url("zstd"), "--root"])
                .arg(&root)
                .args(["--trusted-public-keys", &curl.key, &curl.root]),
        )
        .expect(0);
        let all: BTreeSet<&String> = jq.paths.iter().chain(&curl.paths).collect();
        nix.verify(&root, all.len());
        let verified = run(floe(["verify", "--json", "--root"]).arg(&root))
            .expect(0)
            .json();
        assert_eq!(verified["paths"], all.len());
        // Copy the store to a third one, including both Nix's and floe's paths.
        let copy = scratch.join("copy");
        run(floe(["copy", "--all", "--no-check-sigs", "--from"])
            .arg(&root)
            .arg("--to")
            .arg(&copy))
        .expect(0);
        assert!(
            tree(&copy) == tree(&root),
            "{}: the trees differ",
            nix.version
        );
        nix.verify(&copy, all.len());
    }
}

#[test]
fn derivations_are_registered_with_their_outputs() {
    for nix in nixes() {
        let scratch = scratch();
        let (source, root) = (scratch.join("source"), scratch.join("root"));
        let expression = r#"let
                make = name: args: derivation (args // {
                    inherit name; system = "x86_64-linux"; builder = "/bin/sh"; });
                dep = make "dep" { };
            in make "top" { args = [ dep ]; outputs = [ "out" "dev" ]; }"#;
        let drv = run(nix
            .command("nix-instantiate", ["--store"])
            .arg(&source)
            .args(["-E", expression]))
        .expect(0);
        let drv = drv.stdout.trim();
        run(floe(["copy", "--no-check-sigs", "--from"])
            .arg(&source)
            .arg("--to")
            .arg(&root)
            .arg(drv))
        .expect(0);
        nix.verify(&root, 2);
        let outputs = nix.store(&root, ["-q", "--outputs", drv]);
        assert_eq!(outputs, nix.store(&source, ["-q", "--outputs", drv]));
        assert_eq!(outputs.lines().count(), 2, "{outputs}");
    }
}

#[test]
fn nix_substitutes_from_a_cache_written_by_floe() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = nginx(&corpus.dir, "") else {
        return;
    };
    for nix in nixes() {
        let scratch = scratch();
        let cache = scratch.join("cache");
        let to = format!(
            "file://{}?compression=zstd&secret-key={}",
            cache.display(),
            corpus.dir.join("key.sec").display()
        );
        let from = format!("{}/cache-none", server.url());
        run(&mut floe([
            "copy",
            "--from",
            &from,
            "--to",
            &to,
            &corpus.root,
        ]))
        .expect(0);
        let Some(ours) = nginx(&cache, "") else {
            return;
        };
        let root = scratch.join("root");
        let ran = run(nix
            .command("nix-store", ["--store"])
            .arg(&root)
            .args(["-r", &corpus.root, "--option", "substituters", &ours.url()])
            .args(["--option", "trusted-public-keys", &corpus.key]))
        .expect(0);
        assert_eq!(ran.stdout.trim(), corpus.root);
        assert!(
            ours.log().contains("/nar/"),
            "{} fetched no NAR: {}",
            nix.version,
            ours.log()
        );
        nix.verify(&root, corpus.paths.len());
        // A valid path needs no cache.
        assert_eq!(nix.store(&root, ["-r", &corpus.root]).trim(), corpus.root);
    }
}

/// floe does not hash Git trees, so only a signature makes such a path trusted.
#[test]
fn git_content_address_needs_a_signature() {
    let nixes = nixes();
    let Some(nix) = nixes.iter().find(|nix| !nix.is_2_8()) else {
        return;
    };
    let scratch = scratch();
    let file = scratch.join("file");
    fs::write(&file, "contents\n").unwrap();
    let store = scratch.join("store").display().to_string();
    let features = ["--extra-experimental-features", "git-hashing"];
    let mut add = nix.command("nix", features);
    add.args([
        "store",
        "add",
        "--mode",
        "git",
        "--hash-algo",
        "sha1",
        "--store",
        &store,
    ]);
    let path = run(add.arg(&file)).expect(0).stdout.trim().to_owned();
    let to = |name: &str| scratch.join(name).display().to_string();
    let copy = |to: &str, more: &[&str]| {
        run(floe(["copy", "--from", &store, "--to", to, &path]).args(more))
    };
    let refused = copy(&to("refused"), &[]).expect(3);
    refused.stderr_contains("cannot trust");
    copy(&to("accepted"), &["--no-check-sigs"]).expect(0);
    let cache = format!("file://{}", to("cache"));
    copy(&cache, &[]).expect(0);
    let mut info = nix.command("nix", features);
    info.args(["path-info", "--json", "--store", &to("accepted"), &path]);
    let info = run(&mut info).expect(0).stdout;
    assert!(info.contains("git:sha1:"), "{info}");
    let mut verify = nix.command("nix", features);
    verify.args(["store", "verify", "--no-trust", "--store", &cache, &path]);
    run(&mut verify).expect(0);
}
