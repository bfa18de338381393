//! The result of an install does not depend on umask, ACLs, user, store directory or TLS.

mod crashed_writer;
mod journal_mode;
mod permissions;
mod store_dir;
mod tls;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

use floe_testkit::{
    Corpus, NOBODY_UID, copy_program, corpus, find_tool, nixes, ran_in_pid_namespace, run, scratch,
    setpriv_to_nobody, skip, tree,
};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

/// Returns the arguments of `floe install` for a corpus and its zstd cache.
fn install_args(corpus: &Corpus, root: &Path) -> Vec<String> {
    let from = corpus.file_url("zstd");
    let root = root.display().to_string();
    let keys = "--trusted-public-keys";
    [
        "install",
        "--from",
        &from,
        "--root",
        &root,
        keys,
        &corpus.key,
        // A machine with Nix may have the default build-users-group.
        "--option",
        "build-users-group",
        "",
        &corpus.root,
    ]
    .map(str::to_owned)
    .into()
}

/// Asserts that no path of a store has extended attributes. These include ACLs.
#[track_caller]
fn assert_no_attributes(getfattr: &Path, root: &Path) {
    for entry in fs::read_dir(root.join("nix/store")).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with(".links") {
            continue;
        }
        let args = ["--recursive", "--physical", "--no-dereference", "--match=-"];
        let found = run(Command::new(getfattr)
            .args(args)
            .arg("--absolute-names")
            .arg(&path));
        assert_eq!(
            found.expect(0).stdout,
            "",
            "{} has extended attributes",
            path.display()
        );
    }
}

#[test]
fn umask_does_not_affect_installed_store() {
    let Some(corpus) = corpus("jq") else { return };
    for umask in ["077", "000", "0277"] {
        let scratch = scratch();
        let root = scratch.join("root");
        run(Command::new("/bin/sh")
            .args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_floe"))
            .args(install_args(&corpus, &root)))
        .expect(0);
        assert!(
            tree(&root) == tree(&corpus.store()),
            "umask {umask}: the trees differ"
        );
        for directory in ["", "nix", "nix/store", "nix/store/.links", "nix/var/nix/db"] {
            let mode = fs::metadata(root.join(directory)).unwrap().mode() & 0o7777;
            assert_eq!(mode, 0o755, "umask {umask}: {directory}");
        }
        assert_verified(&root, corpus.paths.len());
    }
}

#[test]
fn symlinked_store_is_written_only_if_allowed() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (real, link) = (scratch.join("real"), scratch.join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let install = || floe(install_args(&corpus, &link));
    run(&mut install())
        .expect(1)
        .stderr_contains("allow-symlinked-store")
        .stderr_contains(link.to_str().unwrap());
    let variable = "NIX_IGNORE_SYMLINK_STORE";
    run(install().env(variable, "1")).expect(0);
    assert!(tree(&real) == tree(&corpus.store()), "the trees differ");
    run(install().args(["--option", "allow-symlinked-store", "true"])).expect(0);
    for nix in nixes() {
        let mut ask = nix.command("nix-store", ["--store"]);
        ask.arg(&link).args(["--check-validity", &corpus.root]);
        assert_ne!(run(&mut ask).code, Some(0), "{}", nix.version);
        run(ask.env(variable, "1")).expect(0);
        nix.verify(&real, corpus.paths.len());
    }
}

#[test]
fn default_acl_of_store_directory_is_not_inherited_by_paths() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(setfacl) = find_tool("setfacl", "acl") else {
        return;
    };
    let Some(getfattr) = find_tool("getfattr", "attr") else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    let store = root.join("nix/store");
    fs::create_dir_all(&store).unwrap();
    let entries = "u::rwx,u:65534:rwx,g::rwx,g:65534:rwx,m::rwx,o::rwx";
    let set = run(Command::new(setfacl)
        .args(["--default", "--modify", entries])
        .arg(&store));
    if set.code != Some(0) {
        skip(
            "ACLs",
            &format!(
                "the file system of {} does not support them",
                store.display()
            ),
        );
        return;
    }
    // Check that new files inherit the ACL by default.
    fs::create_dir(store.join(".links")).unwrap();
    let args = ["--physical", "--match=-", "--absolute-names"];
    let inherited = run(Command::new(&getfattr).args(args).arg(store.join(".links"))).stdout;
    assert!(
        inherited.contains("posix_acl"),
        "the ACL was not inherited: {inherited}"
    );

    run(&mut floe(install_args(&corpus, &root))).expect(0);
    assert!(tree(&root) == tree(&corpus.store()), "the trees differ");
    assert_no_attributes(&getfattr, &root);
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

/// A user has a store of their own. Then the machine gets one, which Nix and floe choose.
#[test]
fn own_store_behind_a_new_store_of_the_machine_is_named() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let Some(user) = setpriv_to_nobody() else {
        return;
    };
    let Some(unshare) = find_tool("unshare", "util-linux") else {
        return;
    };
    if !Path::new("/nix").is_dir() {
        skip("nix-bin", "there is no /nix");
        return;
    }
    let scratch = cache.scratch.path();
    let program = scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    chown(scratch, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    let words = user.get_args().map(|word| word.to_str().unwrap());
    let setpriv = Path::new(user.get_program()).display();
    let as_user = format!("{setpriv} {} ./floe", Vec::from_iter(words).join(" "));
    let script = format!(
        "mount -t tmpfs tmpfs /nix && {as_user} install \"$@\" && {as_user} list && \
         ./floe install \"$@\" && {as_user} list && ! {as_user} gc"
    );
    let mut command = Command::new(unshare);
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command.args(["--from", &cache.file_url(), "--trusted-public-keys"]);
    command.arg(cache.key.public().to_string());
    command.arg(cache.path("libonig5").as_str());
    command.env("HOME", scratch).env_remove("XDG_DATA_HOME");
    let ran = run(command.current_dir(scratch)).expect(0);
    let own = scratch.join(".local/share/nix/root");
    let note = format!(
        "your own store in {0} is there with --root {0}",
        own.display()
    );
    // By the second list, and by the collection.
    assert_eq!(ran.stderr.matches(&note).count(), 2, "{}", ran.stderr);
}

#[test]
fn unprivileged_user_installs_into_own_store() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(FaultyCache {
        corpus,
        scratch,
        cache,
        key,
        ..
    }) = faulty_cache("zstd")
    else {
        return;
    };
    if setpriv_to_nobody().is_none() {
        return;
    }
    // The user may have no access to the build directory.
    let program = scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    chown(scratch.path(), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    let root = scratch.join("root");
    let as_user = |args: &[&str]| {
        let mut command = setpriv_to_nobody().unwrap();
        command
            .arg(&program)
            .args(args)
            .env("HOME", scratch.path())
            .env_remove("XDG_DATA_HOME");
        run(&mut command)
    };
    let (from, key) = (
        format!("file://{}", cache.display()),
        key.public().to_string(),
    );
    let install = |target: &[&str]| {
        let args = [
            "install",
            "--json",
            "--from",
            &from,
            "--trusted-public-keys",
            &key,
        ];
        as_user(&[&args[..], target, &[&corpus.root]].concat())
            .expect(0)
            .json()
    };
    let named = root.display().to_string();
    assert_eq!(install(&["--root", &named])["copied"], corpus.paths.len());
    // Except for the owner, the tree equals that of root.
    let mine = format!(" {NOBODY_UID}:{NOBODY_UID} ");
    let as_roots: Vec<String> = tree(&root)
        .iter()
        .map(|line| line.replacen(&mine, " 0:0 ", 1))
        .collect();
    assert!(as_roots == tree(&corpus.store()), "the trees differ");
    assert_ne!(as_roots, tree(&root));

    let again = install(&["--root", &named]);
    assert_eq!(
        (&again["copied"], &again["alreadyValid"]),
        (&0.into(), &corpus.paths.len().into())
    );
    as_user(&["verify", "--root", &named])
        .expect(0)
        .stderr_contains("0 problems");
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
    // The user can verify a store of root, but cannot add paths to it.
    let roots = scratch.join("roots");
    let mut install_leaf = floe(["install", "--from", &from, "--trusted-public-keys", &key]);
    install_leaf.arg("--root").arg(&roots);
    run(install_leaf.arg(&corpus.paths[0])).expect(0);
    let roots = roots.display().to_string();
    as_user(&["verify", "--root", &roots])
        .expect(0)
        .stderr_contains("0 problems");
    as_user(&["install", "--from", &from, "--root", &roots, &corpus.root])
        .expect(1)
        .stderr_contains("Permission denied");
    // If the machine has no Nix, the default store is in the user's data directory.
    if !Path::new("/nix").exists() {
        install(&[]);
        let own = scratch.join(".local/share/nix/root");
        assert!(
            own.join(&corpus.root[1..]).exists(),
            "not installed into {}",
            own.display()
        );
    }
}
