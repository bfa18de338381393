//! Roots on file systems that are not mounted during a collection, and registrations of roots that
//! do not exist.

mod hidden;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    CommandOutput, Corpus, Nix, Scratch, corpus, find_tool, nixes, ran_in_pid_namespace, run,
    scratch, skip,
};

use super::garbage_store::place;
use super::{floe_in, install, names};
use crate::support::floe;

/// A store, and a script that mounts and unmounts a disk in a mount namespace of its own.
struct Disk {
    scratch: Scratch,
    corpus: Corpus,
    unshare: PathBuf,
}

impl Disk {
    /// Installs the closure of a corpus. Returns `None` if this process cannot mount.
    fn create() -> Option<Disk> {
        let corpus = corpus("jq")?;
        let unshare = find_tool("unshare", "util-linux")?;
        let mount = ["--mount", "mount", "-t", "tmpfs", "x", "/mnt"];
        if run(Command::new(&unshare).args(mount)).code != Some(0) {
            skip("mounts", "mounting is not permitted");
            return None;
        }
        let scratch = scratch();
        install(&corpus, &scratch.join("root"));
        for name in ["disk", "mnt/a b", "home", "home/other"] {
            fs::create_dir_all(scratch.join(name)).unwrap();
        }
        Some(Disk {
            scratch,
            corpus,
            unshare,
        })
    }

    fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    /// The mount point of the disk.
    fn mount_point(&self) -> PathBuf {
        self.scratch.join("mnt/a b")
    }

    fn has_path(&self) -> bool {
        place(&self.root(), &self.corpus.root).exists()
    }

    fn registrations(&self) -> usize {
        names(&self.root().join("nix/var/nix/gcroots/auto")).len()
    }

    /// The names of the records; none if their directory does not exist.
    fn records(&self) -> usize {
        let records = self.root().join("nix/var/nix/db/floe-roots");
        fs::read_dir(records).map_or(0, Iterator::count)
    }

    /// Runs a script. In it, `mounted` mounts the disk and `unmounted` unmounts it; the files on
    /// the disk stay. `floe` runs floe for the store, `register LINK` makes a root with floe, and
    /// `nix_register LINK` with Nix.
    fn run(&self, nix: Option<&Nix>, script: &str) -> CommandOutput {
        let functions = "
            set -eu; P=\"/$NAME\"; cd \"$S\"; mount -t tmpfs disk disk; M=\"$S/mnt/a b\"
            mounted() { mount --bind disk \"$M\"; }
            unmounted() { umount \"$M\"; }
            floe() { command=$1; shift; $TRACER \"$FLOE\" $command --root \"$S/root\" \"$@\"; }
            register() {
                floe install --from \"$CACHE\" --trusted-public-keys \"$KEY\" -o \"$1\" \"$P\"
            }
            nix_register() {
                \"$NIX\" build --store \"$S/root\" --out-link \"$1\" \"$P\"
            }
            has_path() { test -e \"$S/root$P\"; }
            has_no_path() { test ! -e \"$S/root$P\"; }
            ";
        let mut command = Command::new(&self.unshare);
        command.args(["--mount", "/bin/sh", "-c"]);
        command.arg(format!("{functions}{script}"));
        let mut environment = floe(["gc"]);
        if let Some(nix) = nix {
            environment = nix.command("nix", [""]);
            command.env("NIX", nix.program("nix"));
        }
        let environment = environment.get_envs();
        command.envs(environment.filter_map(|(name, value)| Some((name, value?))));
        command.env("FLOE", env!("CARGO_BIN_EXE_floe"));
        command.env("S", self.scratch.path()).env("TRACER", "");
        // A variable with the whole path would be a root.
        command.env("NAME", self.corpus.root.trim_start_matches('/'));
        command.env("CACHE", self.corpus.file_url("zstd"));
        command.env("KEY", &self.corpus.key);
        run(&mut command)
    }

    fn gc(&self) -> CommandOutput {
        run(&mut floe_in(&self.root(), &["gc"])).expect(0)
    }
}

const KEEPING_ROOT: &str = "warning: keeping the root ";

#[test]
fn root_beside_its_store_survives_another_mount_point() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let script = "
        mounted; cp -a root \"$M/root\"; mv root old
        floe_at() { \"$FLOE\" \"$2\" --root \"$1/root\"; }
        \"$FLOE\" install --from \"$CACHE\" --trusted-public-keys \"$KEY\" \
            --root \"$M/root\" -o \"$M/result\" \"$P\"
        unmounted; mkdir elsewhere; mount --bind disk elsewhere
        floe_at \"$S/elsewhere\" gc
        test -e \"elsewhere/root$P\"
        umount elsewhere; mounted; floe_at \"$M\" gc
        test -e \"$M/root$P\"; rm \"$M/result\"; floe_at \"$M\" gc
        test ! -e \"$M/root$P\"";
    let ran = disk.run(None, script).expect(0);
    assert!(ran.stderr.contains("is not mounted"), "{}", ran.stderr);
}

#[test]
fn root_on_an_unmounted_disk_keeps_its_closure() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    // The first collection runs while the disk is not mounted.
    let ran = disk.run(
        None,
        "mounted; mkdir \"$M/project\"; register \"$M/project/result\"; unmounted
         for command in list roots 'gc --dry-run' 'gc --print-dead' gc 'delete --dry-run \"$P\"'; do
             echo \"== $command\" >&2; eval \"floe $command\" || test \"$command\" != gc
         done; has_path
         mounted; has_path; test \"$(readlink \"$M/project/result\")\" = \"$P\"
         floe gc 2>&1; rm \"$M/project/result\"; floe gc --json; has_no_path",
    );
    let ran = ran.expect(0);
    let link = disk.mount_point().join("project/result");
    let auto = disk.root().join("nix/var/nix/gcroots/auto");
    let warning = format!(
        "{KEEPING_ROOT}{}: its file system ({}) is not mounted; if the root is gone for good, \
         remove {}/",
        link.display(),
        disk.mount_point().display(),
        auto.display()
    );
    assert_eq!(ran.stderr.matches(&warning).count(), 5, "{}", ran.stderr);
    let kept = format!("the root {} keeps it", link.display());
    assert!(ran.stderr.contains(&kept), "{}", ran.stderr);
    let listed = format!("{} -> {} (", link.display(), disk.corpus.root);
    assert!(ran.stdout.contains(&listed), "{}", ran.stdout);
    // With the disk, no command warns.
    assert!(!ran.stdout.contains("keeping"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains(r#""staleRegistrations":1"#),
        "{}",
        ran.stdout
    );
    assert_eq!((disk.registrations(), disk.records()), (0, 0));
}

#[test]
fn root_that_nix_registered_is_kept_after_a_collection() {
    if ran_in_pid_namespace() {
        return;
    }
    for nix in nixes() {
        let Some(disk) = Disk::create() else { return };
        let ran = disk.run(
            Some(&nix),
            "mounted; nix_register \"$M/1\"; nix_register \"$M/2\"
             floe gc --dry-run; floe list; floe roots; test ! -e root/nix/var/nix/db/floe-roots
             floe gc; unmounted; floe gc; floe gc; has_path",
        );
        let ran = ran.expect(0);
        let warning = "warning: keeping 2 roots, such as ";
        assert_eq!(ran.stderr.matches(warning).count(), 2, "{}", ran.stderr);
        assert_eq!((disk.registrations(), disk.records()), (2, 2));
        nix.verify(&disk.root(), disk.corpus.paths.len());
        // Nix knows no records. The next collection of floe removes them with the registrations.
        nix.store(&disk.root(), ["--gc"]);
        assert!(!disk.has_path());
        disk.gc();
        assert_eq!((disk.registrations(), disk.records()), (0, 0));
    }
}

#[test]
fn root_behind_a_link_to_an_unmounted_disk_is_kept() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let ran = disk.run(
        None,
        "mounted; mkdir disk/project; ln -s \"$M/project\" home/project
         register \"$S/home/project/result\"; unmounted; floe gc; has_path
         ln -s /absent \"$S/root/nix/var/nix/gcroots/other\"
         rm root/nix/var/nix/gcroots/auto/*; ln -s \"$S/home/project/result\" \\
             root/nix/var/nix/gcroots/administrator
         floe gc; has_path; mounted; rm disk/project/result; floe gc; has_no_path",
    );
    let ran = ran.expect(0);
    assert_eq!(
        ran.stderr.matches(KEEPING_ROOT).count(),
        2,
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("removed"), "{}", ran.stderr);
}

#[test]
fn root_is_recorded_without_mount_ids() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let Some(strace) = find_tool("strace", "strace") else {
        return;
    };
    let tracer = format!(
        "{} -f -o strace.log -e trace=statx -e inject=statx:error=ENOSYS",
        strace.display()
    );
    let script = format!(
        "TRACER='{tracer}'; mounted; register \"$M/result\"; unmounted; floe gc; has_path
         mounted; floe gc; rm \"$M/result\"; floe gc; has_no_path"
    );
    let ran = disk.run(None, &script).expect(0);
    assert_eq!(
        ran.stderr.matches(KEEPING_ROOT).count(),
        1,
        "{}",
        ran.stderr
    );
    let log = fs::read_to_string(disk.scratch.join("strace.log")).unwrap();
    assert!(log.contains("(INJECTED)"), "{log}");
}

#[test]
fn record_outlasts_collections_without_proc() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let ran = disk.run(
        None,
        "mounted; register \"$M/result\"; mount -t tmpfs hidden /proc; floe gc; umount /proc
         unmounted; floe gc; mount -t tmpfs hidden /proc; floe gc; umount /proc; has_path",
    );
    let ran = ran.expect(0);
    assert_eq!(
        ran.stderr.matches(KEEPING_ROOT).count(),
        2,
        "{}",
        ran.stderr
    );
    assert_eq!((disk.registrations(), disk.records()), (1, 1));
}

#[test]
fn uninstall_of_an_unmounted_root_removes_its_registrations() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let auto = "root/nix/var/nix/gcroots/auto";
    let script = format!(
        "mounted; mkdir disk/project; L=\"$M/project/result\"; register \"$L\"
         for link in {auto}/*; do ln -s \"$L\" \"$link-7-0\"; done; unmounted
         floe uninstall --dry-run \"$L\"; floe gc; has_path
         floe uninstall jq || echo refused
         floe uninstall \"$L\"; floe gc; has_no_path; test -L disk/project/result"
    );
    let ran = disk.run(None, &script).expect(0);
    assert_eq!(ran.stdout.matches("removed ").count(), 1, "{}", ran.stdout);
    // The link may belong to another user.
    assert!(ran.stdout.contains("refused"), "{}", ran.stdout);
    let refusal = "or on file systems that are not mounted, keep it; to remove one, name it: ";
    assert!(ran.stderr.contains(refusal), "{}", ran.stderr);
    assert_eq!((disk.registrations(), disk.records()), (0, 0));
}

/// The system tries to mount the disk at each access, and does not find it.
#[test]
fn root_on_an_absent_automatic_mount_is_kept() {
    // A PID namespace does not see the process group that autofs demands.
    for nix in nixes() {
        let Some(disk) = Disk::create() else { return };
        // The processes of the group see the place as it is before the mount.
        let ran = disk.run(
            Some(&nix),
            "mounted; mkdir disk/project; register \"$M/project/1\"; nix_register \"$M/project/2\"
             unmounted; mkfifo pipe; exec 9<>pipe; group=$(cut -d ' ' -f 5 /proc/self/stat)
             options=fd=9,pgrp=$group,minproto=5,maxproto=5,direct
             mount -t autofs -o $options none \"$M\" || { echo no-autofs; exit 0; }
             floe gc; has_path",
        );
        let ran = ran.expect(0);
        if ran.stdout.contains("no-autofs") {
            return skip("autofs", "the kernel does not have it");
        }
        assert_eq!(
            ran.stderr.matches(KEEPING_ROOT).count(),
            1,
            "{}",
            ran.stderr
        );
        let kept = "keeping the registration of the root ";
        assert_eq!(ran.stderr.matches(kept).count(), 1, "{}", ran.stderr);
        assert_eq!((disk.registrations(), disk.records()), (2, 1));
    }
}

/// The user may have attached the disk before floe could write a record.
#[test]
fn registration_below_an_empty_directory_is_kept() {
    if ran_in_pid_namespace() {
        return;
    }
    for nix in nixes() {
        let Some(disk) = Disk::create() else { return };
        let ran = disk.run(
            Some(&nix),
            "mounted; mkdir disk/project; nix_register \"$M/project/1\"
             ln -s \"$M/project\" home/project; nix_register \"$S/home/project/2\"; unmounted
             floe gc --dry-run; floe gc; has_no_path",
        );
        let ran = ran.expect(0);
        let warning = format!(
            "{} is empty, so a file system may not be mounted there",
            disk.mount_point().display()
        );
        assert_eq!(ran.stderr.matches(&warning).count(), 2, "{}", ran.stderr);
        let kept = "keeping the registrations of 2 roots, but not their paths, such as ";
        assert_eq!(ran.stderr.matches(kept).count(), 2, "{}", ran.stderr);
        assert_eq!((disk.registrations(), disk.records()), (2, 0));
    }
}

#[test]
fn root_of_a_removed_project_is_stale() {
    if ran_in_pid_namespace() {
        return;
    }
    for (setup, remove) in [
        (
            "mkdir home/project; L=\"$S/home/project/result\"",
            "rm -r home/project",
        ),
        ("L=\"$S/home/result\"", "rm home/result"),
        // The disk is empty, and is mounted.
        (
            "mounted; mkdir disk/project; L=\"$M/project/result\"",
            "rm -r disk/project",
        ),
        (
            "mounted; L=\"$M/result\"; register \"$L\"; floe gc",
            "rm disk/result",
        ),
    ] {
        let Some(disk) = Disk::create() else { return };
        let script = format!(
            "{setup}; register \"$L\"; {remove}
             for command in list roots 'gc --dry-run' 'gc --print-roots'; do floe $command; done
             has_path; floe gc; has_no_path"
        );
        let ran = disk.run(None, &script).expect(0);
        let stale = "which does not exist; floe gc removes its registration";
        assert_eq!(
            ran.stderr.matches(stale).count(),
            4,
            "{remove}: {}",
            ran.stderr
        );
        let removed = "removed 1 registration of roots that do not exist";
        assert!(ran.stderr.contains(removed), "{remove}: {}", ran.stderr);
        assert!(!ran.stderr.contains("keeping"), "{remove}: {}", ran.stderr);
        assert_eq!((disk.registrations(), disk.records()), (0, 0), "{remove}");
    }
}

#[test]
fn stale_registrations_are_counted_in_one_warning() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let ran = disk.run(
        None,
        "for n in 1 2 3; do register \"$S/home/$n\"; done; rm home/1 home/2 home/3; floe list",
    );
    let ran = ran.expect(0);
    let warning = "warning: ignoring 3 registered roots that do not exist, such as ";
    assert_eq!(ran.stderr.matches(warning).count(), 1, "{}", ran.stderr);
    let removed = disk.gc().stderr;
    assert!(removed.contains("removed 3 registrations"), "{removed}");
}

#[test]
fn root_that_moved_to_another_file_system_has_a_new_record() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    disk.run(None, "mounted; register \"$M/result\"").expect(0);
    assert_eq!(disk.records(), 1);
    // Outside the namespace, no file system is mounted there.
    std::os::unix::fs::symlink(&disk.corpus.root, disk.mount_point().join("result")).unwrap();
    disk.gc();
    assert_eq!((disk.registrations(), disk.records()), (1, 1));
    fs::remove_file(disk.mount_point().join("result")).unwrap();
    disk.gc();
    assert_eq!((disk.registrations(), disk.records()), (0, 0));
    assert!(!disk.has_path());
    install(&disk.corpus, &disk.root());
    disk.run(None, "mounted; register \"$M/result\"").expect(0);
    assert_eq!(disk.records(), 1);
    let link = disk.mount_point().join("result");
    run(floe_in(&disk.root(), &["uninstall"]).arg(&link)).expect(0);
    assert_eq!(disk.records(), 0);
}

/// A file in the place of the directory of records: a description and a function that creates it.
type Obstacle = (&'static str, fn(&Path));

#[test]
fn failing_record_gives_a_warning_and_collection_continues() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(disk) = Disk::create() else { return };
    let records = disk.root().join("nix/var/nix/db/floe-roots");
    let obstacles: [Obstacle; 2] = [
        ("a file", |place| fs::write(place, "").unwrap()),
        ("a link", |place| {
            std::os::unix::fs::symlink("/", place).unwrap()
        }),
    ];
    for (name, make) in obstacles {
        make(&records);
        let script = "mounted; register \"$M/result\"; floe gc; has_path; rm \"$M/result\"";
        let ran = disk.run(None, script).expect(0);
        let warning = "warning: skipping the record of a root: cannot open ";
        assert_eq!(
            ran.stderr.matches(warning).count(),
            2,
            "{name}: {}",
            ran.stderr
        );
        fs::remove_file(&records).unwrap();
    }
}
