//! A small tmpfs for tests with full or read-only disks.
//!
//! It is mounted in a mount namespace that ends with the process that holds it, so nothing remains
//! even if the test is killed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floe_testkit::{CommandOutput, Scratch, nixes, run, scratch, skip};

use crate::support::floe;

/// A tmpfs of a limited size.
pub(crate) struct Mount {
    holder: Child,
    scratch: Scratch,
}

/// Mounts a tmpfs with these options. If mounting is not permitted, records a skip and returns
/// `None`.
pub(crate) fn mount(options: &str) -> Option<Mount> {
    let scratch = scratch();
    let place = scratch.join("mount");
    fs::create_dir(&place).unwrap();
    let script = "mount -t tmpfs -o \"$0\" tmpfs \"$1\" && echo mounted && exec cat";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, options]);
    let mut holder = command
        .arg(&place)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    if line != "mounted\n" {
        holder.wait().unwrap();
        let why = "not allowed here; run the tests as root";
        skip("mount namespaces", why);
        return None;
    }
    Some(Mount { holder, scratch })
}

impl Mount {
    /// Returns the mount point, for commands that run inside the namespace.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.scratch.join("mount")
    }

    /// Returns the path of a sibling of the mount point, which is on another file system.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Returns the root directory of a store in the tmpfs.
    pub(crate) fn root(&self) -> PathBuf {
        self.mount_point().join("root")
    }

    /// Returns the path of a file in the tmpfs for access from outside the namespace.
    pub(crate) fn outside_path(&self, file: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.id());
        Path::new(&root).join(file.strip_prefix("/").unwrap())
    }

    /// Wraps a command so that it runs inside the namespace.
    pub(crate) fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        inside.arg("--").arg(command.get_program());
        inside.args(command.get_args()).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// Runs a command inside the namespace.
    pub(crate) fn run(&self, command: &Command) -> CommandOutput {
        run(&mut self.inside(command))
    }

    /// Changes the mount options.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mut command = Command::new("mount");
        self.run(command.args(["-o", &options]).arg(self.mount_point()))
            .expect(0);
    }

    /// Returns the number of free 4 KiB blocks and of free inodes.
    pub(crate) fn free_blocks_and_inodes(&self) -> (u64, u64) {
        let mut command = Command::new("stat");
        let args = ["--file-system", "--format=%S %a %d"];
        let output = self
            .run(command.args(args).arg(self.mount_point()))
            .expect(0);
        let numbers: Vec<u64> = output
            .stdout
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(numbers[0], 4096);
        (numbers[1], numbers[2])
    }

    /// Asserts that the store in `root()` has no fault. Returns the base names of its paths.
    #[track_caller]
    pub(crate) fn assert_store_valid(&self) -> BTreeSet<String> {
        let root = self.root();
        let address = root.display().to_string();
        self.assert_store_valid_at(&address, &root.join("nix/store"))
    }

    /// Asserts that the store directory contains only valid paths, and that neither floe nor Nix
    /// finds a fault in the store. Returns the base names of the paths.
    #[track_caller]
    pub(crate) fn assert_store_valid_at(
        &self,
        address: &str,
        directory: &Path,
    ) -> BTreeSet<String> {
        let entries = fs::read_dir(self.outside_path(directory)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: BTreeSet<String> = names.filter(|name| name != ".links").collect();
        let verified = self.run(&floe(["verify", "--json", "--store", address]));
        assert_eq!(verified.expect(0).json()["paths"], names.len(), "{names:?}");
        for nix in nixes() {
            let args = ["--store", address, "--verify", "--check-contents"];
            let ran = self.run(&nix.command("nix-store", args)).expect(0);
            for fault in ["disappeared", "modified", "fixing", "updating size"] {
                assert!(!ran.stderr.contains(fault), "{}", ran.stderr);
            }
            let args = ["path-info", "--all", "--store", address];
            let valid = self.run(&nix.command("nix", args)).expect(0).stdout;
            let base = |path: &str| path.rsplit('/').next().unwrap().to_owned();
            let valid: BTreeSet<String> = valid.lines().map(base).collect();
            assert_eq!(valid, names, "valid paths according to {}", nix.version);
        }
        names
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.holder.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.holder.wait();
    }
}
