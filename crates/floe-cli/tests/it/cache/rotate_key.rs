//! `floe cache rotate-key`.

use std::fs;
use std::path::PathBuf;

use floe_testkit::{CommandOutput, corpus, nixes, run, s3_server, scratch};

use super::{cache, narinfo};
use crate::cache_gc::TeamCache;
use crate::push::{floe_with_keys, key, key_named, source_root};
use crate::support::floe;

/// Signs with a new key what the key of the team has signed.
fn rotate(team: &TeamCache, new: &str, more: &[&str]) -> CommandOutput {
    let args = ["--old-key", &team.public_key, "--key-file", new];
    cache("rotate-key", &team.uri, &[&args[..], more].concat())
}

fn signers(file: PathBuf) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let signatures = text.lines().filter_map(|line| line.strip_prefix("Sig: "));
    let names = signatures.map(|it| it.split(':').next().unwrap().to_owned());
    names.collect()
}

/// Checks that Nix installs with exactly those of two keys that it should.
fn check_keys(team: &TeamCache, keys: [(&str, bool); 2]) {
    for nix in nixes() {
        for (number, (key, works)) in keys.into_iter().enumerate() {
            let root = team
                .scratch
                .join(&format!("{number}-{}-{works}", nix.version));
            let mut copy = nix.command("nix", ["copy", "--from", &team.uri, "--to"]);
            copy.arg(&root).args(["--trusted-public-keys", key]);
            let copied = run(copy.arg(&team.corpus.root));
            assert_eq!(copied.code == Some(0), works, "{key}: {}", copied.stderr);
        }
    }
}

#[test]
fn new_key_signs_what_the_old_key_has_signed() {
    let Some(team) = TeamCache::new() else { return };
    team.pin("web", &team.corpus.root);
    // Another program has written a field that floe does not know.
    let root = narinfo(&team.directory, &team.corpus.root);
    let text = fs::read_to_string(&root).unwrap();
    fs::write(&root, format!("{text}X-Other: kept\n")).unwrap();
    let pin = team.directory.join("pins/web");
    let text = fs::read_to_string(&pin).unwrap();
    fs::write(&pin, format!("{text}X-Note: kept\n")).unwrap();
    let (new, public) = key_named(&team.scratch, "team-2");
    let count = team.corpus.paths.len();

    let shown = rotate(&team, &new, &["--dry-run"]).expect(0).json();
    assert_eq!(
        (&shown["paths"], &shown["pins"]),
        (&count.into(), &2.into())
    );
    assert_eq!(signers(root.clone()), ["team-1"]);
    let done = rotate(&team, &new, &[]).expect(0).json();
    assert_eq!(shown, done);
    for path in &team.corpus.paths {
        assert_eq!(
            signers(narinfo(&team.directory, path)),
            ["team-1", "team-2"]
        );
    }
    assert_eq!(signers(narinfo(&team.directory, &team.other)), [""; 0]);
    assert_eq!(
        signers(team.directory.join("pins/web")),
        ["team-1", "team-2"]
    );
    check_keys(&team, [(&team.public_key, true), (&public, true)]);
    let again = rotate(&team, &new, &[]).expect(0);
    again.stderr_contains("nothing to do");

    let removed = rotate(&team, &new, &["--remove-old"]).expect(0).json();
    assert_eq!(removed["paths"], count);
    check_keys(&team, [(&team.public_key, false), (&public, true)]);
    assert_eq!(signers(team.directory.join("pins/web")), ["team-2"]);
    let text = fs::read_to_string(&root).unwrap();
    assert!(text.contains("X-Other: kept\n"), "{text}");
    let text = fs::read_to_string(&pin).unwrap();
    assert!(text.contains("X-Note: kept\n"), "{text}");
    cache("verify", &team.uri, &["--contents"]).expect(0);
    rotate(&team, &new, &["--remove-old"]).expect(0);

    // A client finds the pin with the new key alone.
    let names = format!("team=pins+{}", team.uri.split('?').next().unwrap());
    let mut install = floe(["install", "--names", &names, "web", "--root"]);
    install
        .arg(team.scratch.join("root"))
        .env("HOME", team.scratch.path());
    install.args(["--from", &team.uri, "--trusted-public-keys", &public]);
    run(&mut install).expect(0);
}

/// The old key has not signed what such a narinfo says, so the new one does not either.
#[test]
fn wrong_signature_is_not_renewed() {
    let Some(team) = TeamCache::new() else { return };
    let root = narinfo(&team.directory, &team.corpus.root);
    let text = fs::read_to_string(&root).unwrap();
    let changed = text.replacen("NarSize: ", "NarSize: 1", 1);
    fs::write(&root, &changed).unwrap();
    let (new, _) = key_named(&team.scratch, "team-2");
    let failed = rotate(&team, &new, &["--remove-old"]).expect(3);
    assert_eq!(failed.json()["paths"], team.corpus.paths.len() - 1);
    failed.stderr_contains("its signature by the old key is wrong");
    assert_eq!(fs::read_to_string(&root).unwrap(), changed);
}

/// Nothing is passed over in silence.
#[test]
fn objects_that_cannot_be_signed_are_named() {
    let Some(team) = TeamCache::new() else { return };
    let (new, _) = key_named(&team.scratch, "team-2");
    let other_key = team.public_key.replace("team-1", "team-l");
    let args = ["--old-key", &other_key, "--key-file", &new];
    let nothing = cache("rotate-key", &team.uri, &args).expect(0);
    nothing.stderr_contains("no path in");
    let [odd, damaged] = ["-libonig", "-libjq1-"].map(|part| {
        let path = super::path_like(&team.corpus, part);
        narinfo(&team.directory, path)
    });
    let text = fs::read_to_string(&odd).unwrap();
    fs::write(&odd, text.replace("\nSig: ", "\nSig:\n")).unwrap();
    fs::write(&damaged, "StorePath: x\n").unwrap();
    fs::create_dir_all(team.directory.join("pins/directory")).unwrap();
    fs::write(team.directory.join("pins/.hidden"), "").unwrap();
    let failed = rotate(&team, &new, &["--remove-old"]).expect(3);
    assert_eq!(failed.json()["failed"], 3, "{}", failed.stderr);
    assert_eq!(failed.json()["paths"], team.corpus.paths.len() - 2);
    failed.stderr_contains("lines of an unusual form");
}

#[test]
fn unusable_keys_are_refused() {
    let Some(team) = TeamCache::new() else { return };
    let (same, _) = key(&team.scratch);
    rotate(&team, &same, &[])
        .expect(2)
        .stderr_contains("the new key has the same name");
    let secret = fs::read_to_string(&team.secret_key).unwrap();
    let secret = secret.trim();
    let args = ["--old-key", secret, "--key-file", &same];
    let refused = cache("rotate-key", &team.uri, &args).expect(2);
    let (_, key) = secret.split_once(':').unwrap();
    assert!(!refused.stderr.contains(key), "{}", refused.stderr);
}

/// Pushes with the old key go on while the key is rotated.
#[test]
fn pushes_with_the_old_key_are_found_by_the_next_rotation() {
    let (Some(team), Some(curl)) = (TeamCache::new(), corpus("curl")) else {
        return;
    };
    let (new, public) = key_named(&team.scratch, "team-2");
    let store = source_root(&curl);
    let mut push = floe(["push", "--to", &team.uri, "--root", &store, &curl.root]);
    push.args(["--secret-key-file", &team.secret_key]);
    let mut pushing = push.spawn().unwrap();
    let first = rotate(&team, &new, &[]).expect(0).json();
    assert!(first["paths"].as_u64().unwrap() >= team.corpus.paths.len() as u64);
    assert!(pushing.wait().unwrap().success());
    rotate(&team, &new, &[]).expect(0);
    for path in team.corpus.paths.iter().chain(&curl.paths) {
        let signers = signers(narinfo(&team.directory, path));
        assert!(
            signers.contains(&"team-2".to_owned()),
            "{path}: {signers:?}"
        );
    }
    cache("verify", &team.uri, &["--contents"]).expect(0);
    check_keys(&team, [(&team.public_key, true), (&public, true)]);
}

#[test]
fn key_of_a_bucket_is_rotated() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let scratch = scratch();
    let ((old, old_public), (new, new_public)) = (key(&scratch), key_named(&scratch, "team-2"));
    let (uri, root) = (server.uri("team"), source_root(&corpus));
    let args = ["push", "--to", &uri, "--root", &root, &corpus.root];
    let mut push = floe_with_keys(&server, &args);
    run(push.args(["--secret-key-file", &old])).expect(0);
    let args = [
        "cache",
        "rotate-key",
        "--json",
        &uri,
        "--old-key",
        &old_public,
    ];
    let mut rotate = floe_with_keys(&server, &args);
    let done = run(rotate.args(["--key-file", &new, "--remove-old"])).expect(0);
    assert_eq!(done.json()["paths"], corpus.paths.len());
    for (key, code) in [(&old_public, 3), (&new_public, 0)] {
        let args = ["cache", "verify", "--sigs-needed", "1", &uri];
        let mut verify = floe_with_keys(&server, &args);
        run(verify.args(["--trusted-public-key", key])).expect(code);
    }
}
