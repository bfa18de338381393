//! Owners and permissions of a store and its files equal those of a store made by Nix.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_format::StoreDir;
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::{
    Corpus, NOBODY_UID, copy_program, corpus, nixes, run, scratch, setpriv_to_nobody, skip, tree,
};

use super::install_args;
use crate::support::floe;
use floe_testkit::find_tool;

/// Returns the same command with umask 077.
fn with_strict_umask(command: &Command) -> Command {
    let mut with_strict_umask = Command::new("/bin/sh");
    with_strict_umask.args(["-c", "umask 077; exec \"$0\" \"$@\""]);
    with_strict_umask
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => with_strict_umask.env(name, value),
            None => with_strict_umask.env_remove(name),
        };
    }
    with_strict_umask
}

/// Returns type, mode and owner of everything below a root, except the contents of store paths.
/// Names of indirect roots are replaced, since they are hashes of link locations.
fn modes(root: &Path) -> BTreeMap<String, String> {
    fn list(root: &Path, directory: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let owner = (metadata.uid(), metadata.gid());
            let is_auto = directory.ends_with("auto");
            let name = if is_auto {
                directory.join("HASH")
            } else {
                path.clone()
            };
            let name = name.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, format!("{:o} {owner:?}", metadata.mode()));
            if metadata.is_dir() && !directory.ends_with("nix/store") {
                list(root, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    list(root, root, &mut found);
    found
}

#[test]
fn file_modes_under_strict_umask_equal_those_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
        let profile = |root: &Path| root.join("nix/var/nix/profiles/test");
        let mut install = floe(install_args(&corpus, &ours));
        install.arg("--out-link").arg(scratch.join("our-link"));
        install.arg("--profile").arg(profile(&ours));
        run(&mut with_strict_umask(&install)).expect(0);

        let from = corpus.file_url("zstd");
        let args = ["copy", "--no-check-sigs", "--from", &from, "--to"];
        let mut copy = nix.command("nix", args);
        run(&mut with_strict_umask(copy.arg(&theirs).arg(&corpus.root))).expect(0);
        let mut realise = nix.command("nix-store", ["--store"]);
        realise.arg(&theirs).args(["--indirect", "--add-root"]);
        realise.arg(scratch.join("their-link"));
        run(&mut with_strict_umask(
            realise.arg("--realise").arg(&corpus.root),
        ))
        .expect(0);
        let mut set = nix.command("nix-env", ["--store"]);
        set.arg(&theirs).arg("--profile").arg(profile(&theirs));
        run(&mut with_strict_umask(set.arg("--set").arg(&corpus.root))).expect(0);

        let (ours, theirs) = (modes(&ours), modes(&theirs));
        let mut compared = 0;
        for (name, mode) in &ours {
            // Nix 2.8 removes the write-ahead log when it closes the database.
            let Some(theirs) = theirs.get(name) else {
                let is_log = name.ends_with("-wal") || name.ends_with("-shm");
                let is_own = name.contains("/floe-sync-record") || name.contains("/floe-roots");
                assert!(is_log || is_own, "{} has no {name}", nix.version);
                continue;
            };
            assert_eq!(mode, theirs, "{}: {name}", nix.version);
            compared += 1;
        }
        assert!(compared >= corpus.paths.len() + 18, "{ours:?}");
    }
}

/// Returns mode, owner and group of the store directory.
fn store_owner(root: &Path) -> (u32, u32, u32) {
    let found = fs::metadata(root.join("nix/store")).unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid())
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        skip("root", "only root may change file owners and mount");
    }
    is_root
}

#[test]
fn store_directory_belongs_to_build_users_group_as_in_nix() {
    let Some(corpus) = corpus("jq") else { return };
    if !is_root() {
        return;
    }
    let group = ["--option", "build-users-group", GROUP];
    for nix in nixes() {
        let scratch = scratch();
        let (ours, theirs) = (scratch.join("ours"), scratch.join("theirs"));
        // Start without a group, so that an existing store changes its group.
        let install = || floe(install_args(&corpus, &ours));
        run(install().args(["--option", "build-users-group", ""])).expect(0);
        assert_eq!(store_owner(&ours), (0o755, 0, 0));
        run(install().args(["--option", "build-users-group", "no-such-group"]))
            .expect(0)
            .stderr_contains("there is no group no-such-group");
        assert_eq!(store_owner(&ours), (0o755, 0, 0));
        run(install().args(group)).expect(0);

        let from = corpus.file_url("zstd");
        let args = ["copy", "--no-check-sigs", "--from", &from, "--to"];
        let mut copy = nix.command("nix", args);
        run(copy.arg(&theirs).arg(&corpus.root).args(group)).expect(0);
        let (mode, owner, number) = store_owner(&theirs);
        assert_eq!((mode, owner), (0o1775, 0), "{}", nix.version);
        assert_ne!(number, 0);
        assert_eq!(store_owner(&ours), store_owner(&theirs), "{}", nix.version);
        assert!(
            tree(&ours) == tree(&theirs),
            "{}: the trees differ",
            nix.version
        );
        // floe and Nix keep each other's owner and mode.
        run(install().args(group)).expect(0);
        nix.verify(&ours, corpus.paths.len());
        assert_eq!(store_owner(&ours), store_owner(&theirs), "{}", nix.version);
    }
}

/// Copies the binary to a directory that every user may access.
fn copy_floe_to(directory: &Path) -> PathBuf {
    let program = directory.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn daemon_store_suggests_sudo_or_own_root() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(user) = setpriv_to_nobody() else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    // The store lacks the paths, so the install needs to write.
    let layout = StoreLayout::in_root(&root, StoreDir::default());
    drop(StoreWriter::open(layout).unwrap());
    let sockets = root.join("nix/var/nix/daemon-socket");
    fs::create_dir(&sockets).unwrap();
    let _daemon = UnixListener::bind(sockets.join("socket")).unwrap();
    let mut command = user;
    command.arg(copy_floe_to(scratch.path()));
    command.env("HOME", "/nonexistent");
    run(command.args(install_args(&corpus, &root)))
        .expect(1)
        .stderr_contains("it belongs to the Nix daemon")
        .stderr_contains("sudo floe")
        .stderr_contains("--root DIR");
}

/// Returns a command that runs a shell script in its own mount namespace, in which the store
/// directory of `root` is a read-only mount. In the script, `"$@"` are the arguments of the
/// command. If mounting is not permitted, records a skip and returns `None`.
fn with_read_only_mount(root: &Path, script: &str) -> Option<Command> {
    let unshare = find_tool("unshare", "util-linux")?;
    let store = root.join("nix/store");
    let mounting = format!(
        "set -e; mount --bind '{0}' '{0}'; mount -o remount,bind,ro,nodev '{0}'; {script}",
        store.display()
    );
    let probe = run(Command::new(&unshare).args(["--mount", "mount", "--bind", "/mnt", "/mnt"]));
    if probe.code != Some(0) {
        skip("mounts", "mounting is not permitted");
        return None;
    }
    let mut command = Command::new(unshare);
    command.args(["--mount", "/bin/sh", "-c", &mounting, "sh"]);
    Some(command)
}

/// Returns a path of the jq corpus with a small closure.
fn small_closure_path(corpus: &Corpus) -> &str {
    let is_part = |path: &&String| path.contains("-libonig");
    corpus.paths.iter().find(is_part).unwrap()
}

#[test]
fn root_writes_to_read_only_mount_and_others_still_cannot() {
    let Some(corpus) = corpus("jq") else { return };
    if !is_root() {
        return;
    }
    let scratch = scratch();
    let root = scratch.join("root");
    let mut args = install_args(&corpus, &root);
    let whole = args.pop().unwrap();
    args.push(small_closure_path(&corpus).to_owned());
    run(&mut floe(&args)).expect(0);
    args.push(whole);
    let script = "\"$@\"; if touch \"$STORE/x\"; then echo writable >&2; exit 7; fi";
    let Some(mut command) = with_read_only_mount(&root, script) else {
        return;
    };
    command.arg(env!("CARGO_BIN_EXE_floe")).args(args);
    command.env("STORE", root.join("nix/store"));
    run(&mut command)
        .expect(0)
        .stderr_contains("Read-only file system");
    assert!(tree(&root) == tree(&corpus.store()), "the trees differ");
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

#[test]
fn read_only_mount_is_reported_to_unprivileged_user() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(user) = setpriv_to_nobody() else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("root");
    fs::create_dir_all(root.join("nix/store")).unwrap();
    for directory in ["", "nix", "nix/store"] {
        chown(root.join(directory), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    }
    let Some(mut command) = with_read_only_mount(&root, "\"$@\"") else {
        return;
    };
    command
        .arg(user.get_program())
        .args(user.get_args())
        .arg(copy_floe_to(scratch.path()));
    command.env("HOME", "/nonexistent");
    run(command.args(install_args(&corpus, &root)))
        .expect(1)
        .stderr_contains("is mounted read-only")
        .stderr_contains("sudo floe")
        .stderr_contains("--root DIR");
}

/// A group that exists on every system and is not root's.
const GROUP: &str = "daemon";
