//! Collections that cannot delete, cannot write, or cannot see all roots.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use floe_format::StoreDir;
use floe_store::{Collector, GcSettings, Progress, StoreError, StoreLayout, WriteOptions};
use floe_testkit::{corpus, nixes, ran_in_pid_namespace, run, scratch, setpriv_to_nobody};

use super::garbage_store::place;
use super::{floe_in, gc, install, names};
use crate::support::floe;
use crate::tmpfs_mount::mount;

/// A file that no user can remove, until it is dropped.
struct Immutable(PathBuf);

impl Immutable {
    /// Returns `None` if the file system or the rights of this user do not allow it.
    fn new(file: PathBuf) -> Option<Immutable> {
        let ran = run(Command::new("chattr").arg("+i").arg(&file));
        (ran.code == Some(0)).then(|| Immutable(file))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        run(Command::new("chattr").arg("-i").arg(&self.0)).expect(0);
    }
}

#[test]
fn immutable_file_fails_alone() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let file = place(&root, &corpus.root).join("usr/bin/jq");
    let Some(immutable) = Immutable::new(file.clone()) else {
        floe_testkit::skip("chattr", "no immutable files here; run as root on ext4");
        return;
    };
    let ran = gc(&root, &[]).expect(1);
    ran.stderr_contains("cannot delete")
        .stderr_contains("Operation not permitted")
        .stderr_contains("cannot delete all files at 1 place");
    // All other paths are gone, and the row of this one too.
    assert_eq!(names(&root.join("nix/store")).len(), 2);
    assert!(file.exists());
    drop(immutable);
    let result = gc(&root, &["--json"]).expect(0).json();
    assert_eq!(result["paths"], 1);
    for nix in nixes() {
        nix.verify(&root, 0);
    }
}

#[test]
fn store_of_another_user_is_refused() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(mut nobody) = setpriv_to_nobody() else {
        return;
    };
    let copy = scratch.join("floe");
    floe_testkit::copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &copy);
    nobody.arg(&copy).arg("gc").arg("--root").arg(&root);
    run(nobody.env("HOME", "/nonexistent"))
        .expect(1)
        .stderr_contains("Permission denied");
    assert_eq!(names(&root.join("nix/store")).len(), corpus.paths.len() + 1);
}

#[test]
fn read_only_store_is_refused() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(mount) = mount("size=64m") else {
        return;
    };
    let Some(corpus) = corpus("jq") else { return };
    let root = mount.root();
    let mut install = floe([
        "install",
        "--no-check-sigs",
        "--from",
        &corpus.file_url("zstd"),
    ]);
    mount
        .run(install.arg("--root").arg(&root).arg(&corpus.root))
        .expect(0);
    mount.remount("ro");
    mount
        .run(&floe_in(&root, &["gc"]))
        .expect(1)
        .stderr_contains("Read-only file system");
    mount.run(&floe_in(&root, &["gc", "--dry-run"])).expect(0);
    mount.remount("rw");
    let uri = format!("local?root={}&read-only=true", root.display());
    mount
        .run(&floe(["gc", "--store", &uri]))
        .expect(2)
        .stderr_contains("read-only");
    let result = mount
        .run(&floe_in(&root, &["gc", "--json"]))
        .expect(0)
        .json();
    assert_eq!(
        result["paths"].as_u64().unwrap() as usize,
        corpus.paths.len()
    );
}

#[test]
fn full_disk_is_collected() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(mount) = mount("size=64m") else {
        return;
    };
    let Some(corpus) = corpus("jq") else { return };
    let root = mount.root();
    let mut install = floe([
        "install",
        "--no-check-sigs",
        "--from",
        &corpus.file_url("zstd"),
    ]);
    mount
        .run(install.arg("--root").arg(&root).arg(&corpus.root))
        .expect(0);
    let filler = mount.mount_point().join("filler");
    let mut fill = Command::new("dd");
    fill.args(["if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", filler.display()));
    mount.run(&fill).expect(1).stderr_contains("No space left");
    let result = mount
        .run(&floe_in(&root, &["gc", "--json"]))
        .expect(0)
        .json();
    assert_eq!(
        result["paths"].as_u64().unwrap() as usize,
        corpus.paths.len()
    );
    assert!(mount.assert_store_valid().is_empty());
}

/// Runs a command in a mount namespace without `/proc`.
fn without_proc(command: &Command) -> Command {
    let mut unshare = Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    unshare.args(["--mount", "sh", "-c", script, "sh"]);
    unshare.arg(command.get_program()).args(command.get_args());
    unshare.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    unshare
}

#[test]
fn missing_proc_is_reported_and_ignored_as_by_nix() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let tried = run(&mut without_proc(&Command::new("true")));
    if tried.code != Some(0) {
        floe_testkit::skip("unshare", "no mount namespace; run as root");
        return;
    }
    let ran = run(&mut without_proc(&floe_in(&root, &["gc", "--json"]))).expect(0);
    assert!(ran.stderr.contains("there is no /proc"), "{}", ran.stderr);
    assert_eq!(
        ran.json()["paths"].as_u64().unwrap() as usize,
        corpus.paths.len()
    );
}

#[test]
fn second_collection_waits_for_the_first() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    symlink(&corpus.root, root.join("nix/var/nix/gcroots/kept")).unwrap();
    gc(&root, &[]).expect(0);
    let lock = fs::File::create(root.join("nix/var/nix/gc.lock")).unwrap();
    lock.lock().unwrap();
    let mut waiting = floe_in(&root, &["gc"]);
    let waiting = waiting
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Longer than the second after which the command says that it waits.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    drop(lock);
    let output = waiting.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("waiting for the garbage collector"),
        "{stderr}"
    );
}

#[test]
fn linked_links_directory_is_not_followed() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let (links, elsewhere) = (root.join("nix/store/.links"), scratch.join("elsewhere"));
    fs::remove_dir(&links).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "").unwrap();
    symlink(&elsewhere, &links).unwrap();
    gc(&root, &[]).expect(1).stderr_contains(".links");
    assert!(elsewhere.join("file").exists());
    run(&mut floe_in(&root, &["optimise"])).expect(1);
    assert_eq!(names(&elsewhere).len(), 1);
}

/// Ends the collection after the first deletion.
struct Interrupt(AtomicBool);

impl Progress for Interrupt {
    fn path_done(&self, _nar_bytes: u64) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn should_continue(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn interrupted_collection_is_an_error() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let layout = StoreLayout::in_root(&root, StoreDir::default());
    let collector = Collector::open(layout, &WriteOptions::default()).unwrap();
    let interrupt = Interrupt(AtomicBool::new(false));
    let (results, collected) = collector.collect(&GcSettings::default(), None, &interrupt);
    assert!(
        matches!(collected, Err(StoreError::Interrupted)),
        "{collected:?}"
    );
    assert!(results.paths > 0);
    let left = names(&root.join("nix/store")).len();
    assert!(left > 1, "the collection went on");
    drop(collector);
    gc(&root, &[]).expect(0);
    assert_eq!(names(&root.join("nix/store")).len(), 1);
}

/// On NixOS, the store directory is mounted read-only.
#[test]
fn read_only_mount_of_the_store_is_collected() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let store = root.join("nix/store");
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
    let with_mount = |command: &Command| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script]).arg(&store);
        unshare.arg(command.get_program()).args(command.get_args());
        unshare
    };
    if run(&mut with_mount(&Command::new("true"))).code != Some(0) {
        floe_testkit::skip("unshare", "no mount namespace; run as root");
        return;
    }
    let mut delete = floe_in(&root, &["delete", &corpus.root]);
    run(&mut with_mount(delete.arg("--json"))).expect(0);
    run(&mut with_mount(&floe_in(&root, &["optimise"]))).expect(0);
    let result = run(&mut with_mount(&floe_in(&root, &["gc", "--json"])))
        .expect(0)
        .json();
    assert_eq!(
        result["paths"].as_u64().unwrap() as usize,
        corpus.paths.len() - 1
    );
    assert_eq!(names(&store).len(), 1);
}
