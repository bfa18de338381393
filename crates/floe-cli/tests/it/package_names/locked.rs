//! `floe lock`, `--lock` and `--locked`.

use super::*;

#[test]
fn locked_names_have_their_paths_and_hashes() {
    let Some(packages) = packages() else { return };
    let file = packages.scratch.join("names.toml");
    let write_names = |path: &str| {
        let text = format!("greet = '{path}'\nother = '{}'\n", packages.old);
        fs::write(&file, text).unwrap();
    };
    write_names(&packages.old);
    let names = format!("team=file:{}", file.display());
    let url = packages.cache_url();
    let locked =
        run(&mut packages.floe(&["lock", "greet", "team#greet@1.0", "--from", &url], &names));
    let text = locked.expect(0).stdout;
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object["names"]["greet"]["path"], json!(packages.old));
    assert_eq!(
        object["names"]["team#greet@1.0"]["path"],
        json!(packages.old)
    );
    let hash = object["names"]["greet"]["narHash"]
        .as_str()
        .unwrap()
        .to_owned();
    // Real Nix has the same hash.
    let origin = packages.scratch.join("origin");
    let mut info = packages
        .nix
        .command("nix", ["path-info", "--json", "--store"]);
    let info = info
        .arg(&origin)
        .arg(&packages.old)
        .output()
        .unwrap()
        .stdout;
    assert!(String::from_utf8(info).unwrap().contains(&hash), "{hash}");
    let lock = packages.scratch.join("floe.lock");
    fs::write(&lock, &text).unwrap();

    // The name has moved, and the lock has not.
    write_names(&packages.new);
    let install = |root: &str, name: &str, more: &[&str]| {
        let root = packages.scratch.join(root).display().to_string();
        let mut command = floe(["install", name, "--json", "--from", &url, "--root", &root]);
        packages.set_home(&mut command);
        run(command.args(more))
    };
    let unlocked = install("new", "greet", &["--names", &names]).expect(0);
    assert_eq!(unlocked.json()["paths"], json!([packages.new]));
    for name in ["greet", "team#greet@1.0"] {
        let found = install(&format!("locked-{}", name.len()), name, &["--locked"]).expect(0);
        assert_eq!(found.json()["paths"], json!([packages.old]));
    }
    let lock_option = lock.display().to_string();
    let both = ["--lock", &lock_option, "--names", &names];
    let found = install("both", "greet", &both).expect(0);
    assert_eq!(found.json()["paths"], json!([packages.old]));
    install("both", "other", &both).expect(0);
    install("both", "other", &["--locked"])
        .expect(1)
        .stderr_contains("no package of this name");

    // A program of a locked name, although the store has another path of this name.
    let root = packages.scratch.join("new").display().to_string();
    let mut program = floe(["run", "greet", "--locked", "--from", &url, "--root", &root]);
    packages.set_home(&mut program);
    assert_eq!(run(program.args(["--", "old"])).expect(0).stdout, "old\n");

    // Another NAR hash is refused: in the cache before a byte is fetched, and in a store.
    let other_hash = format!("sha256-{}=", "A".repeat(43));
    fs::write(&lock, text.replace(&hash, &other_hash)).unwrap();
    let refused = install("refused", "greet", &["--locked"]).expect(3);
    refused.stderr_contains(&format!("not {other_hash}, which the lock file has"));
    assert!(
        !packages
            .scratch
            .join("refused/nix/store")
            .join(&packages.old["/nix/store/".len()..])
            .exists()
    );
    let present = install("both", "greet", &["--locked"]).expect(3);
    present.stderr_contains("its NAR hash is ");
    // A new lock file keeps the hash of the old one, and the source.
    let lock_again = || {
        let words = ["lock", "greet", "--lock", &lock_option, "--from", &url];
        run(&mut packages.floe(&words, &names))
    };
    lock_again().expect(3).stderr_contains("its NAR hash is ");
    // The store has this path, and both names. The lock comes first all the same.
    let mut program = floe(["run", "greet", "--lock", &lock_option, "--root", &root]);
    packages.set_home(&mut program);
    let refused = run(program.args(["--from", &url, "--names", &names, "--", "old"]));
    refused.expect(3).stderr_contains("and the valid path ");
    let mut info = floe(["info", "greet", "--locked", "--from", &url]);
    packages.set_home(&mut info);
    run(&mut info).expect(3).stderr_contains("its NAR hash is ");
    fs::write(&lock, &text).unwrap();
    let again = lock_again().expect(0).stdout;
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["names"]["greet"], object["names"]["greet"]);
    for (wrong, reason) in [
        (
            text.replace("\"version\": 1", "\"version\": 9"),
            "it has version 9",
        ),
        (
            text.replace("-linux\"", "-darwin\""),
            "and this machine is ",
        ),
        (text.replace(&hash, "x"), "is not a SHA-256"),
        ("{".into(), "EOF"),
    ] {
        fs::write(&lock, wrong).unwrap();
        install("wrong", "greet", &["--locked"])
            .expect(1)
            .stderr_contains(reason);
    }
    fs::remove_file(&lock).unwrap();
    install("wrong", "greet", &["--locked"])
        .expect(1)
        .stderr_contains("floe.lock");
    install("wrong", "greet", &["--locked", "--no-names"]).expect(2);
}
