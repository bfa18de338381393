//! `floe copy-sigs`, and `floe sign` behind a daemon.

use std::fs;
use std::path::Path;

use floe_testkit::{CommandOutput, Corpus, corpus, nixes, run, scratch};

use crate::push::{key, source_root};
use crate::support::floe;

/// Makes a store with the closure of a corpus and no signatures.
fn unsigned_store(corpus: &Corpus, root: &Path) {
    let from = source_root(corpus);
    let mut copy = floe(["copy", "--no-check-sigs", "--from", &from, "--to"]);
    run(copy.arg(root).arg(&corpus.root)).expect(0);
}

fn copy_sigs(args: &[&str]) -> CommandOutput {
    run(floe(["copy-sigs", "--json"]).args(args))
}

/// Returns the number of signatures of each path of a store, as Nix prints them.
fn signature_counts(nix: &floe_testkit::Nix, store: &str, corpus: &Corpus) -> Vec<usize> {
    let infos = nix.path_infos(store, &corpus.root);
    let count = |info: &serde_json::Value| info["signatures"].as_array().map_or(0, Vec::len);
    infos.iter().map(count).collect()
}

#[test]
fn signatures_are_those_that_nix_copies() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.join(name));
        unsigned_store(&corpus, &ours);
        unsigned_store(&corpus, &theirs);
        let cache = corpus.file_url("zstd");
        let (root, count) = (ours.display().to_string(), corpus.paths.len());
        let args = ["--from", &cache, "--root", &root, "-r", &corpus.root];
        let copied = copy_sigs(&args).expect(0);
        assert_eq!(
            (&copied.json()["paths"], &copied.json()["signed"]),
            (&count.into(), &count.into())
        );
        let again = copy_sigs(&args).expect(0);
        assert_eq!(again.json()["signed"], 0);
        again.stderr_contains("nothing to do");

        let store = theirs.display().to_string();
        let args = ["store", "copy-sigs", "--store", &store, "-s", &cache, "-r"];
        run(nix.command("nix", args).arg(&corpus.root)).expect(0);
        let (ours, theirs) = (
            nix.path_infos(&root, &corpus.root),
            nix.path_infos(&store, &corpus.root),
        );
        assert_eq!(ours, theirs, "{}", nix.version);
        // The signatures are good.
        let key = ["--trusted-public-keys", &corpus.key, "--to"];
        let mut copy = floe(["copy", "--from", &root]);
        run(copy.args(key).arg(scratch.join("other")).arg(&corpus.root)).expect(0);
    }
}

#[test]
fn store_behind_a_daemon_gets_signatures_and_is_signed() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        unsigned_store(&corpus, &root);
        let daemon = nix.daemon(&root, "");
        let (uri, count) = (daemon.uri(), corpus.paths.len());
        let cache = corpus.file_url("zstd");
        let args = ["--from", &cache, "--to", &uri, "--recursive", &corpus.root];
        assert_eq!(copy_sigs(&args).expect(0).json()["signed"], count);
        assert_eq!(copy_sigs(&args).expect(0).json()["signed"], 0);

        let (file, public) = key(&scratch);
        let sign = || {
            let args = ["sign", "--json", "--key-file", &file, &uri, "--all"];
            run(&mut floe(args)).expect(0).json()
        };
        assert_eq!(sign()["signed"], count);
        assert_eq!(sign()["signed"], 0);
        let store = root.display().to_string();
        let counts = signature_counts(&nix, &store, &corpus);
        assert_eq!(counts, vec![2; count], "{}", nix.version);
        let key = ["--trusted-public-keys", &public, "--to"];
        let mut copy = floe(["copy", "--from", &store]);
        run(copy.args(key).arg(scratch.join("other")).arg(&corpus.root)).expect(0);

        let absent = "/nix/store/00000000000000000000000000000000-absent";
        let absent = run(&mut floe(["sign", "-k", &file, &uri, absent])).expect(1);
        absent.stderr_contains("cannot find 00000000000000000000000000000000-absent in unix://");
    }
}

/// A cache that has other contents under the same path, and one that is damaged.
#[test]
fn other_contents_give_no_signature() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("zstd", &scratch.join("cache"));
    let plain = scratch.join("plain");
    let to = format!("file://{}", plain.display());
    let (from, count) = (source_root(&corpus), corpus.paths.len());
    let mut push = floe(["push", "--to", &to, "--root", &from]);
    run(push.arg(&corpus.root)).expect(0);
    let narinfo = |path: &str| {
        let hash_part = path.split(['/', '-']).nth(3).unwrap();
        cache.join(format!("{hash_part}.narinfo"))
    };
    let (other, damaged) = (&corpus.paths[0], &corpus.paths[1]);
    let text = fs::read_to_string(narinfo(other)).unwrap();
    let at = text.find("NarHash: sha256:").unwrap() + "NarHash: sha256:".len();
    let hash = format!("{}{}{}", &text[..at], "0".repeat(52), &text[at + 52..]);
    fs::write(narinfo(other), hash).unwrap();
    fs::write(narinfo(damaged), "StorePath: x\n").unwrap();
    let from = format!("file://{}", cache.display());
    let ran = copy_sigs(&["--from", &from, "--to", &to, "--all"]).expect(3);
    assert_eq!(ran.json()["signed"], count - 2);
    let differs =
        format!("no signature of {other} was copied from {from}, which has another NAR hash");
    ran.stderr_contains(&differs)
        .stderr_contains(narinfo(damaged).to_str().unwrap());
    // The other cache has them all.
    let both = [
        "--from",
        &from,
        "--from",
        &corpus.file_url("xz"),
        "--to",
        &to,
        "--all",
    ];
    assert_eq!(copy_sigs(&both).expect(3).json()["signed"], 2);
    let mut install = floe(["install", "--from", &to, "--trusted-public-keys"]);
    install.args([&corpus.key, "--root"]);
    run(install.arg(scratch.join("root")).arg(&corpus.root)).expect(0);
}

#[test]
fn store_that_is_missing_is_not_created() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("absent").display().to_string();
    let cache = corpus.file_url("zstd");
    copy_sigs(&["--from", &cache, "--root", &root, &corpus.root]).expect(4);
    assert!(!Path::new(&root).exists());
    let to = format!("file://{root}");
    copy_sigs(&["--from", &cache, "--to", &to, &corpus.root]).expect(4);
    assert!(!Path::new(&root).exists());
}
