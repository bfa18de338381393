//! Roots that cannot be read, and links that look like roots.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;
use std::process::Command;

use floe_testkit::{NOBODY_UID, corpus, find_tool, nixes, ran_in_pid_namespace, run, scratch};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::garbage_store::place;
use super::{floe_in, gc, install, names};

/// The link may be a root that can be read again later.
#[test]
fn root_on_a_failing_file_system_stops_only_deletions() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let Some(strace) = find_tool("strace", "strace") else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let link = scratch.join("result");
    symlink(&corpus.root, &link).unwrap();
    symlink(&link, root.join("nix/var/nix/gcroots/registered")).unwrap();
    let before = names(&root.join("nix/store"));
    for error in ["EIO", "ENOTCONN", "ESTALE"] {
        let failing = |arguments: &[&str]| {
            let log = scratch.join("strace");
            let mut command = Command::new(&strace);
            command.args(["-f", "-e", "trace=readlink,readlinkat"]);
            command.args(["-e", &format!("inject=readlink,readlinkat:error={error}")]);
            command.arg("-P").arg(&link).arg("-o").arg(&log);
            let floe = floe_in(&root, arguments);
            command.arg(floe.get_program()).args(floe.get_args());
            command.envs(floe.get_envs().filter_map(|(name, it)| Some((name, it?))));
            let ran = run(&mut command);
            let log = fs::read_to_string(log).unwrap();
            assert!(log.contains("(INJECTED)"), "{log}");
            ran
        };
        for arguments in [
            &["gc"][..],
            &["gc", "--print-dead"],
            &["delete", &corpus.root],
        ] {
            let ran = failing(arguments).expect(1);
            for part in [link.to_str().unwrap(), "gcroots/registered", "or remove"] {
                assert!(ran.stderr.contains(part), "{}", ran.stderr);
            }
        }
        for arguments in [&["list"][..], &["roots"]] {
            failing(arguments)
                .expect(0)
                .stderr_contains("warning: skipping a root");
        }
    }
    assert_eq!(names(&root.join("nix/store")), before);
    gc(&root, &[]).expect(0);
    assert!(place(&root, &corpus.root).exists());
}

/// Each user may make such links. Nix stops at them.
#[test]
fn links_that_cannot_be_roots_are_skipped_with_a_warning() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    symlink("loop", scratch.join("loop")).unwrap();
    let roots = root.join("nix/var/nix/gcroots");
    fs::create_dir_all(roots.join("per-user/other")).unwrap();
    symlink(scratch.join("loop/result"), roots.join("per-user/loop")).unwrap();
    let long = format!("/{}", "x".repeat(300));
    symlink(long, roots.join("per-user/long")).unwrap();
    let mut deep = Directory::open(&roots.join("per-user/other"));
    for _ in 0..6000 {
        deep = deep.create_below("d");
    }
    drop(deep);
    let directory = scratch.join("directory");
    fs::create_dir(&directory).unwrap();
    symlink(&directory, roots.join("linked")).unwrap();
    for arguments in [&["list"][..], &["roots"], &["gc", "--dry-run"], &["gc"]] {
        let ran = run(&mut floe_in(&root, arguments)).expect(0);
        for warning in [
            "per-user/loop: it leads through too many links",
            "per-user/long: it leads through too many links or to a name that is too long",
            "per-user/other/d: they are too deep",
            "gcroots/linked: it is a link to a directory",
        ] {
            assert_eq!(ran.stderr.matches(warning).count(), 1, "{}", ran.stderr);
        }
        assert!(ran.stderr.len() < 3000, "{}", ran.stderr);
    }
    assert!(!place(&root, &corpus.root).exists());
}

#[test]
fn link_of_nix_to_the_profiles_needs_no_warning() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("root");
        let from = corpus.file_url("zstd");
        let mut copy = nix.command("nix", ["copy", "--no-check-sigs", "--from", &from, "--to"]);
        run(copy.arg(&root).arg(&corpus.root)).expect(0);
        let state = root.join("nix/var/nix");
        // Nix 2.34 no longer makes it, and finds it in older stores.
        let link = state.join("gcroots/profiles");
        if !link.is_symlink() {
            symlink(state.join("profiles"), &link).unwrap();
        }
        symlink(&corpus.root, state.join("profiles/kept")).unwrap();
        for arguments in [&["list"][..], &["roots"], &["gc", "--dry-run"], &["gc"]] {
            let ran = run(&mut floe_in(&root, arguments)).expect(0);
            assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
        }
        assert!(place(&root, &corpus.root).exists(), "{}", nix.version);
    }
}

/// An administrator may move the directories of roots to another disk.
#[test]
fn roots_behind_linked_state_directories_keep_their_paths() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    for moved in ["gcroots", "gcroots/auto", "gcroots/per-user", "profiles"] {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root);
        let state = root.join("nix/var/nix");
        let (place, elsewhere) = (state.join(moved), scratch.join("elsewhere"));
        fs::create_dir_all(&place).unwrap();
        fs::rename(&place, &elsewhere).unwrap();
        symlink(&elsewhere, &place).unwrap();
        symlink(&corpus.root, place.join("kept")).unwrap();
        gc(&root, &[]).expect(0);
        assert!(self::place(&root, &corpus.root).exists(), "{moved}");
        // New roots are made there too.
        let link = scratch.join("result");
        let mut again = floe_in(&root, &["install", "--from", &corpus.file_url("zstd")]);
        again.args(["--trusted-public-keys", &corpus.key, "-o"]);
        run(again.arg(&link).arg(&corpus.root)).expect(0);
        fs::remove_file(place.join("kept")).unwrap();
        gc(&root, &[]).expect(0);
        assert!(self::place(&root, &corpus.root).exists(), "{moved}");
        // The other disk is not mounted.
        let unmounted = scratch.join("unmounted");
        fs::rename(&elsewhere, &unmounted).unwrap();
        gc(&root, &[])
            .expect(1)
            .stderr_contains("which does not exist; try to mount its file system");
        run(&mut floe_in(&root, &["roots"])).expect(0);
        assert!(self::place(&root, &corpus.root).exists(), "{moved}");
        assert!(fs::read_link(&place).is_ok(), "{moved}");
        fs::rename(&unmounted, &elsewhere).unwrap();
        // Another user could redirect the link.
        lchown(&place, Some(NOBODY_UID), None).unwrap();
        gc(&root, &[])
            .expect(1)
            .stderr_contains("is a symbolic link of another user");
    }
}

#[test]
fn lost_directory_of_temporary_roots_stops_a_collection() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let directory = root.join("nix/var/nix/temproots");
    fs::remove_dir_all(&directory).unwrap();
    symlink("/not-mounted/temproots", &directory).unwrap();
    gc(&root, &[]).expect(1).stderr_contains("temproots");
    run(&mut floe_in(&root, &["gc", "--dry-run"]))
        .expect(1)
        .stderr_contains("which does not exist; try to mount its file system");
    assert!(place(&root, &corpus.root).exists());
}

/// An open directory, for trees that are deeper than a path can be long.
struct Directory(OwnedFd);

impl Directory {
    fn open(path: &Path) -> Directory {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Directory(openat(CWD, path, flags, Mode::empty()).unwrap())
    }

    fn create_below(&self, name: &str) -> Directory {
        mkdirat(&self.0, name, Mode::RWXU).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Directory(openat(&self.0, name, flags, Mode::empty()).unwrap())
    }
}
