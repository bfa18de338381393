//! File systems that are mounted inside a store path: their files do not belong to the store.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{CommandOutput, corpus, find_tool, ran_in_pid_namespace, run, scratch, skip};
use rusqlite::Connection;

use super::{floe_in, install, names};

/// Runs a command of floe in its own mount namespace, in which a tmpfs with a file is mounted in
/// the directory `usr` of `path`, and prints the mode, the time and the files of the tmpfs.
fn run_with_mount(root: &Path, path: &str, arguments: &[&str]) -> Option<CommandOutput> {
    let unshare = find_tool("unshare", "util-linux")?;
    let probe = run(Command::new(&unshare).args(["--mount", "mount", "-t", "tmpfs", "x", "/mnt"]));
    if probe.code != Some(0) {
        skip("mounts", "mounting is not permitted");
        return None;
    }
    let place = root.join(&path[1..]).join("usr");
    let script = format!(
        "set -e; mount -t tmpfs -o mode=750 floe-test '{0}'; echo text > '{0}/file'; \
         chmod 444 '{0}/file'; touch -d @1000 '{0}'; set +e; \"$@\"; code=$?; \
         stat -c '%a %Y' '{0}'; ls '{0}'; exit $code",
        place.display()
    );
    let command = floe_in(root, arguments);
    let mut mounted = Command::new(unshare);
    mounted.args(["--mount", "/bin/sh", "-c", &script, "sh"]);
    mounted.arg(command.get_program()).args(command.get_args());
    Some(run(&mut mounted))
}

#[test]
fn mount_inside_a_path_keeps_its_files_and_is_named() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    for arguments in [
        &["gc"][..],
        &["delete", &corpus.root],
        &["optimise"],
        &["optimise", "--dry-run"],
    ] {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root);
        let place = root.join(&corpus.root[1..]).join("usr");
        let Some(ran) = run_with_mount(&root, &corpus.root, arguments) else {
            return;
        };
        let place = place.display();
        let expected = format!("another file system is mounted at {place}; try umount {place}");
        let ran = ran.expect(1).stderr_contains(&expected);
        assert_eq!(ran.stdout, "750 1000\nfile\n", "{arguments:?}");
        // Without the mount, the rest can be deleted.
        run(&mut floe_in(&root, &["gc"])).expect(0);
        assert!(!root.join(&corpus.root[1..]).exists(), "{arguments:?}");
    }
}

#[test]
fn repair_of_a_path_with_a_mount_changes_nothing() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let from = corpus.file_url("zstd");
    let trusted = ["--from", &from, "--trusted-public-keys", &corpus.key];
    for command in [&["verify"][..], &["install", &corpus.root]] {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root);
        let before = names(&root.join("nix/store"));
        let place = root.join(&corpus.root[1..]).join("usr");
        let arguments = [command, &["--repair"], &trusted].concat();
        let Some(ran) = run_with_mount(&root, &corpus.root, &arguments) else {
            return;
        };
        let place = place.display();
        let expected = format!("another file system is mounted at {place}; try umount {place}");
        let ran = ran.expect(1).stderr_contains(&expected);
        assert!(ran.stdout.ends_with("750 1000\nfile\n"), "{}", ran.stdout);
        assert_eq!(names(&root.join("nix/store")), before, "{command:?}");
        // Without the mount, nothing is damaged.
        run(&mut floe_in(&root, &["verify"])).expect(0);
        run(&mut floe_in(&root, &["gc"])).expect(0);
    }
}

#[test]
fn install_over_an_invalid_tree_with_a_mount_changes_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let database = Connection::open(root.join("nix/var/nix/db/db.sqlite")).unwrap();
    let forget = "delete from ValidPaths where path = ?1";
    database.execute(forget, [&corpus.root]).unwrap();
    drop(database);
    let other = root.join(&corpus.root[1..]).join("other");
    fs::write(&other, "text").unwrap();
    let from = corpus.file_url("zstd");
    let mut arguments = vec!["install", &corpus.root, "--from", &from];
    arguments.extend(["--trusted-public-keys", &corpus.key]);
    let Some(ran) = run_with_mount(&root, &corpus.root, &arguments) else {
        return;
    };
    let ran = ran
        .expect(1)
        .stderr_contains("another file system is mounted at");
    assert!(ran.stdout.ends_with("750 1000\nfile\n"), "{}", ran.stdout);
    assert!(root.join(&corpus.root[1..]).join("usr/bin/jq").exists());
    assert!(other.exists(), "the install has removed a part of the tree");
    run(&mut floe_in(&root, &arguments)).expect(0);
    run(&mut floe_in(&root, &["verify"])).expect(0);
}
