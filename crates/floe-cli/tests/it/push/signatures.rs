//! Signatures that are added to paths which a cache or a store has already.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::{CommandOutput, Corpus, corpus, nixes, run, s3_server, scratch};

use super::{floe_with_keys, key, key_named, nix_copies, source_root};
use crate::support::floe;

/// Pushes into a directory.
fn push(corpus: &Corpus, cache: &Path, more: &[&str]) -> CommandOutput {
    let (to, root) = (format!("file://{}", cache.display()), source_root(corpus));
    let mut command = floe(["push", "--json", "--to", &to, "--root", &root]);
    run(command.args(more).arg(&corpus.root)).expect(0)
}

/// Returns the file of a narinfo in a directory.
fn narinfo(cache: &Path, path: &str) -> PathBuf {
    let hash_part = path.split(['/', '-']).nth(3).unwrap();
    cache.join(format!("{hash_part}.narinfo"))
}

/// Installs from a cache with the keys that Nix's format lists. Returns the output.
fn install(corpus: &Corpus, from: &str, keys: &str, root: &Path) -> CommandOutput {
    let args = ["install", "--from", from, "--trusted-public-keys", keys];
    run(floe(args).arg("--root").arg(root).arg(&corpus.root))
}

#[test]
fn second_push_with_a_key_signs_present_paths() {
    // Paths that are queried one by one, and paths that are listed.
    for name in ["jq", "curl"] {
        let (Some(corpus), Some(server)) = (corpus(name), s3_server("team")) else {
            return;
        };
        let scratch = scratch();
        let (file, public) = key(&scratch);
        let (to, root) = (server.uri("team"), source_root(&corpus));
        let push = |more: &[&str]| {
            let args = ["push", "--json", "--to", &to, "--root", &root, &corpus.root];
            run(floe_with_keys(&server, &args).args(more)).expect(0)
        };
        let count = corpus.paths.len();
        assert_eq!(push(&[]).json()["unsigned"], count);
        let from = format!("s3://team?endpoint={}", server.endpoint());
        let mut refused = floe_with_keys(&server, &["install", "--from", &from]);
        refused.args(["--trusted-public-keys", &public, "--root"]);
        run(refused.arg(scratch.join("refused")).arg(&corpus.root)).expect(3);

        let signed = push(&["--secret-key-file", &file]);
        assert_eq!(
            (&signed.json()["signed"], &signed.json()["copied"]),
            (&count.into(), &0.into())
        );
        let said = format!("signed {count} of {count} present paths");
        assert!(signed.stderr.contains(&said), "{}", signed.stderr);
        let puts = || {
            let log = server.log();
            let puts = log.lines().filter(|line| line.contains("s3_PutObject"));
            puts.filter(|line| !line.contains("leases/")).count()
        };
        let before = puts();
        // Each narinfo twice: without and with the signature.
        assert!(before >= 2 * count, "{before} objects written");
        let again = push(&["--secret-key-file", &file]);
        assert_eq!((&again.json()["signed"], puts()), (&0.into(), before));
        let mut accepted = floe_with_keys(&server, &["install", "--from", &from]);
        accepted.args(["--trusted-public-keys", &public, "--root"]);
        run(accepted.arg(scratch.join("accepted")).arg(&corpus.root)).expect(0);
    }
}

#[test]
fn push_signs_present_paths_beside_new_ones() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, public) = key(&scratch);
    let cache = scratch.join("cache");
    push(&corpus, &cache, &[]);
    fs::remove_file(narinfo(&cache, &corpus.root)).unwrap();
    let output = push(&corpus, &cache, &["--secret-key-file", &file]);
    let json = output.json();
    assert_eq!(
        (&json["copied"], &json["signed"]),
        (&1.into(), &(corpus.paths.len() - 1).into())
    );
    let from = format!("file://{}", cache.display());
    install(&corpus, &from, &public, &scratch.join("root")).expect(0);
    for (number, nix) in nixes().iter().enumerate() {
        let by_nix = scratch.join(&format!("by-nix-{number}"));
        nix_copies(nix, &from, by_nix.to_str().unwrap(), &corpus);
        nix.verify(&by_nix, corpus.paths.len());
    }
}

/// Another process signs while the push sends a NAR.
#[test]
fn push_keeps_signatures_that_come_meanwhile() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let scratch = scratch();
    let (file, _) = key(&scratch);
    let (other, _) = key_named(&scratch, "other-1");
    let (to, root) = (server.uri("team"), source_root(&corpus));
    let push = |to: &str, more: &[&str]| {
        let args = ["push", "--to", to, "--root", &root, &corpus.root];
        run(floe_with_keys(&server, &args).args(more)).expect(0)
    };
    push(&to, &[]);
    let bucket = server.bucket("team");
    fs::remove_file(narinfo(&bucket, &corpus.root)).unwrap();
    let signed = Arc::new(AtomicBool::new(false));
    let (is_signed, place) = (signed.clone(), bucket.clone());
    let proxy = FaultProxy::start(server.address(), move |_, line| {
        if line.starts_with("PUT") && line.contains("/nar/") {
            let cache = format!("file://{}", place.display());
            let mut sign = floe(["sign", "--all", &cache, "--key-file"]);
            run(sign.arg(&other)).expect(0);
            is_signed.store(true, Ordering::SeqCst);
        }
        ProxyFault::None
    });
    let through = format!("s3://team?endpoint={}", proxy.url());
    push(&through, &["--secret-key-file", &file]);
    assert!(signed.load(Ordering::SeqCst), "no NAR was pushed");
    let library = corpus.paths.iter().find(|path| path.contains("libonig"));
    let narinfo = fs::read_to_string(narinfo(&bucket, library.unwrap())).unwrap();
    for name in ["team-1", "other-1"] {
        assert!(narinfo.contains(&format!("Sig: {name}:")), "{narinfo}");
    }
}

/// A narinfo with other facts than those of the local path is not signed.
#[test]
fn push_does_not_sign_other_contents() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, _) = key(&scratch);
    let cache = scratch.join("cache");
    push(&corpus, &cache, &[]);
    let narinfo = narinfo(&cache, &corpus.root);
    let text = fs::read_to_string(&narinfo).unwrap();
    let other: String = text
        .lines()
        .filter(|line| !line.starts_with("References: "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_ne!(other, text);
    fs::write(&narinfo, &other).unwrap();
    let output = push(&corpus, &cache, &["--secret-key-file", &file]);
    assert!(
        output.stderr.contains("warning: not signing"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("its references in the cache"),
        "{}",
        output.stderr
    );
    assert_eq!(output.json()["signed"], corpus.paths.len() - 1);
    assert_eq!(fs::read_to_string(&narinfo).unwrap(), other);
}

/// A key is replaced: both keys sign for a time.
#[test]
fn sign_adds_the_signature_of_a_new_key() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let (file, public) = key(&scratch);
    let cache = scratch.join("cache");
    floe_testkit::copy_tree(&corpus.cache("zstd"), &cache);
    let uri = format!("file://{}", cache.display());
    let sign = |more: &[&str]| run(floe(["sign", "--json", "--key-file", &file, &uri]).args(more));
    let one = sign(&[&corpus.root]).expect(0).json();
    assert_eq!((&one["paths"], &one["signed"]), (&1.into(), &1.into()));
    let closure = sign(&["--recursive", &corpus.root]).expect(0).json();
    let count = corpus.paths.len();
    assert_eq!(
        (&closure["paths"], &closure["signed"]),
        (&count.into(), &(count - 1).into())
    );
    let all = sign(&["--all"]).expect(0);
    assert_eq!(all.json()["signed"], 0);
    assert!(all.stderr.contains("nothing to do"), "{}", all.stderr);
    // The old signatures stay.
    for (number, keys) in [&public, &corpus.key].into_iter().enumerate() {
        install(
            &corpus,
            &uri,
            keys,
            &scratch.join(&format!("root-{number}")),
        )
        .expect(0);
    }
    let absent = "/nix/store/00000000000000000000000000000000-absent";
    let absent = sign(&[absent]).expect(1);
    assert!(
        absent.stderr.contains("does not have it"),
        "{}",
        absent.stderr
    );
}

/// No process writes over the signatures of the other one.
#[test]
fn two_processes_sign_one_directory() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let cache = scratch.join("cache");
    floe_testkit::copy_tree(&corpus.cache("zstd"), &cache);
    let uri = format!("file://{}", cache.display());
    let signers: Vec<_> = (1..=4)
        .map(|number| {
            let (file, _) = key_named(&scratch, &format!("key-{number}"));
            let mut sign = floe(["sign", "--all", &uri, "--key-file"]);
            sign.arg(file).spawn().unwrap()
        })
        .collect();
    for mut signer in signers {
        assert!(signer.wait().unwrap().success());
    }
    let mut count = 0;
    for entry in fs::read_dir(&cache).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "narinfo") {
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text.matches("Sig: key-").count(), 4, "{text}");
            count += 1;
        }
    }
    assert_eq!(count, corpus.paths.len());
}

#[test]
fn sign_writes_the_database_of_a_local_store() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, public) = key(&scratch);
    let root = scratch.join("root");
    let from = corpus.file_url("zstd");
    install(&corpus, &from, &corpus.key, &root).expect(0);
    let store = root.display().to_string();
    let mut sign = floe(["sign", "--json", "-k", &file, &store, "-r", &corpus.root]);
    let count = corpus.paths.len();
    assert_eq!(run(&mut sign).expect(0).json()["signed"], count);
    assert_eq!(run(&mut sign).expect(0).json()["signed"], 0);
    // Another store accepts the paths by the new key alone, and so does Nix.
    let args = [
        "copy",
        "--from",
        &store,
        "--trusted-public-keys",
        &public,
        "--to",
    ];
    run(floe(args).arg(scratch.join("other")).arg(&corpus.root)).expect(0);
    for nix in nixes() {
        nix.verify(&root, count);
    }
    let new = scratch.join("absent").display().to_string();
    run(floe(["sign", "-k", &file, &new]).arg(&corpus.root)).expect(4);
    assert!(!scratch.join("absent").exists());
}

/// One row that does not parse does not keep the others from being signed.
#[test]
fn damaged_row_is_named_and_the_others_are_signed() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, _) = key(&scratch);
    let root = scratch.join("root");
    install(&corpus, &corpus.file_url("zstd"), &corpus.key, &root).expect(0);
    let (good, bad) = (&corpus.paths[0], &corpus.paths[1]);
    let database = root.join("nix/var/nix/db/db.sqlite");
    let database = rusqlite::Connection::open(database).unwrap();
    let damage = "update ValidPaths set hash = 'sha256:zz' where path = ?1";
    assert_eq!(database.execute(damage, [bad]).unwrap(), 1);
    let mut sign = floe(["sign", "--json", "-k", &file]);
    let ran = run(sign.arg(&root).args([bad, good])).expect(1);
    assert_eq!(ran.json()["signed"], 1);
    let said = format!("cannot sign {bad}: its row in the database");
    ran.stderr_contains(&said);
}

/// A narinfo under the name of another path is no path of the cache.
#[test]
fn narinfo_under_another_name_is_left_out() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, _) = key(&scratch);
    let cache = scratch.join("cache");
    floe_testkit::copy_tree(&corpus.cache("zstd"), &cache);
    let [one, other] = [&corpus.paths[0], &corpus.paths[1]].map(|path| narinfo(&cache, path));
    fs::copy(&one, &other).unwrap();
    let uri = format!("file://{}", cache.display());
    let ran = run(&mut floe(["sign", "--json", "--all", "-k", &file, &uri])).expect(0);
    let count = corpus.paths.len() - 1;
    assert_eq!(ran.json()["signed"], count);
    assert_eq!(ran.json()["paths"], count);
    let said = format!("{}: it is for ", other.display());
    ran.stderr_contains("leaving out a path")
        .stderr_contains(&said);
}
