//! Roots that exist and that a collection cannot see.

use std::path::Path;
use std::process::Command;

use floe_testkit::{copy_program, nixes, ran_in_pid_namespace, run, setpriv_to_nobody};

use super::{Disk, KEEPING_ROOT};
use crate::support::floe;

/// A service may see an empty directory in the place of `/home`.
#[test]
fn root_below_a_hidden_directory_is_kept() {
    for nix in nixes() {
        let Some(disk) = Disk::create() else { return };
        let ran = disk.run(
            Some(&nix),
            "mkdir home/project; nix_register \"$S/home/project/1\"
             register \"$S/home/project/2\"; mount -t tmpfs hidden home; floe gc; has_path
             umount home; floe gc; mount -t tmpfs hidden home; floe gc; has_path; umount home
             rm -r home/project; mkdir home/more; floe gc; has_no_path",
        );
        let ran = ran.expect(0);
        let kept = "warning: keeping 2 roots, such as ";
        assert_eq!(ran.stderr.matches(kept).count(), 1, "{}", ran.stderr);
        assert_eq!(
            ran.stderr.matches(KEEPING_ROOT).count(),
            1,
            "{}",
            ran.stderr
        );
        let registration = "keeping the registration of the root ";
        assert_eq!(
            ran.stderr.matches(registration).count(),
            1,
            "{}",
            ran.stderr
        );
        assert_eq!((disk.registrations(), disk.records()), (0, 0));
    }
}

/// As sshfs and NFS with `root_squash`, a FUSE file system of another user refuses root.
#[test]
fn root_that_may_not_be_read_is_kept() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let Some(setpriv) = setpriv_to_nobody() else {
        return;
    };
    // The store of an ordinary user, and a directory that the user loses.
    let program = disk.scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    let home = disk.scratch.join("home");
    let mut install = floe(["install", "-o"]);
    install
        .arg(home.join("result"))
        .arg("--root")
        .arg(disk.root());
    install.args(["--from", &disk.corpus.file_url("zstd")]);
    install.args(["--trusted-public-keys", &disk.corpus.key, &disk.corpus.root]);
    run(&mut install).expect(0);
    let shell = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(script)
            .current_dir(disk.scratch.path());
        run(&mut command).expect(0)
    };
    shell("chown -R -h 65534:65534 root; chmod 755 .; chmod 700 home");
    let mut gc = setpriv;
    gc.env("HOME", "/nonexistent").arg(&program);
    run(gc.args(["gc", "--root"]).arg(disk.root())).expect(0);
    assert!(disk.has_path());
    shell("rm root/nix/var/nix/db/floe-roots/*");
    shell("printf x > root/nix/var/nix/db/floe-roots/$(ls root/nix/var/nix/gcroots/auto)");
    let damaged = run(&mut gc).expect(1);
    assert!(
        damaged.stderr.contains("it is damaged"),
        "{}",
        damaged.stderr
    );
    assert!(disk.has_path());
}
