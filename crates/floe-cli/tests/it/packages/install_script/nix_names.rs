//! `install.sh --nix-names`: links to floe under the names of Nix's programs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use floe_testkit::{CommandOutput, find_tool, run};

use super::super::{linked_names, links_in};
use super::{Served, files_below, served};

/// A machine without Nix, on which a shell runs the script.
struct Machine {
    served: Served,
    shell: Vec<PathBuf>,
    bin: PathBuf,
}

/// The programs that the script uses.
const TOOLS: [&str; 20] = [
    "cat",
    "cp",
    "cut",
    "dirname",
    "grep",
    "gzip",
    "head",
    "id",
    "mkdir",
    "mktemp",
    "mv",
    "readlink",
    "rm",
    "rmdir",
    "sed",
    "sha256sum",
    "sort",
    "tail",
    "tar",
    "uname",
];

/// Returns a machine with the usual programs, and one with those of busybox alone.
fn machines() -> Option<[Machine; 2]> {
    let (dash, busybox) = (find_tool("dash", "dash")?, find_tool("busybox", "busybox")?);
    let machine = |shell: Vec<PathBuf>, tool: &dyn Fn(&str) -> Option<PathBuf>| {
        let served = served()?;
        let bin = served.scratch.join("bin");
        fs::create_dir(&bin).unwrap();
        for name in TOOLS {
            symlink(tool(name)?, bin.join(name)).unwrap();
        }
        Some(Machine { served, shell, bin })
    };
    Some([
        machine(vec![dash], &|name| find_tool(name, "coreutils"))?,
        machine(vec![busybox.clone(), "sh".into()], &|_| {
            Some(busybox.clone())
        })?,
    ])
}

impl Machine {
    fn prefix(&self) -> PathBuf {
        self.served.scratch.join("prefix")
    }

    /// Runs the script for the prefix.
    fn script(&self, options: &[&str]) -> CommandOutput {
        let mut script = Command::new(&self.shell[0]);
        script.args(&self.shell[1..]);
        script.arg(self.served.scratch.join("install.sh"));
        script.arg("--url").arg(self.served.release());
        script.arg("--prefix").arg(self.prefix()).args(options);
        self.run(&mut script)
    }

    fn run(&self, command: &mut Command) -> CommandOutput {
        let home = self.served.scratch.path();
        run(command.env("PATH", &self.bin).env("HOME", home))
    }
}

#[test]
fn links_are_those_of_link_names_and_uninstall_removes_them() {
    let Some(machines) = machines() else { return };
    for machine in machines {
        let (prefix, shell) = (machine.prefix(), &machine.shell);
        let installed = machine.script(&["--nix-names"]).expect(0);
        let line = "bin/floe under the names nix nix-";
        assert!(installed.stderr.contains(line), "{}", installed.stderr);
        let store = prefix.join("bin/nix-store");
        let version = run(Command::new(&store).arg("--version")).expect(0).stdout;
        assert!(version.starts_with("floe"), "{version}");
        assert_eq!(links_in(&prefix.join("bin")), linked_names(), "{shell:?}");
        // An update without the option keeps the links, and knows them.
        machine.script(&[]).expect(0);
        // The administrator has installed Nix meanwhile.
        fs::remove_file(&store).unwrap();
        symlink("/nowhere/nix-store", &store).unwrap();
        machine.script(&["--uninstall"]).expect(0);
        let left = ["bin", "bin/nix-store"].map(str::to_owned);
        assert_eq!(files_below(&prefix), left.into(), "{shell:?}");
    }
}

#[test]
fn uninstall_follows_no_link_out_of_the_prefix() {
    let Some([machine, _]) = machines() else {
        return;
    };
    let prefix = machine.prefix();
    machine.script(&["--nix-names"]).expect(0);
    let outside = machine.served.scratch.join("outside");
    symlink("floe", &outside).unwrap();
    let record = prefix.join("share/doc/floe/installed");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, format!("{text}link ../outside\nlink bin/gone\n")).unwrap();
    machine.script(&["--uninstall"]).expect(0);
    assert!(!prefix.exists(), "{:?}", files_below(&prefix));
    assert!(outside.is_symlink());
}

#[test]
fn beside_nix_floe_is_installed_without_links() {
    let Some(machines) = machines() else { return };
    for machine in machines {
        let (prefix, nix) = (machine.prefix(), machine.bin.join("nix-env"));
        fs::write(&nix, "").unwrap();
        let ran = machine.script(&["--nix-names"]).expect(1);
        for message in [
            &*format!("{} is Nix, and programs expect to find it", nix.display()),
            "floe is installed without them",
        ] {
            assert!(ran.stderr.contains(message), "{}", ran.stderr);
        }
        assert_eq!(links_in(&prefix.join("bin")), BTreeSet::new());
        run(Command::new(prefix.join("bin/floe")).arg("--version")).expect(0);
        fs::remove_file(&nix).unwrap();
        machine.script(&["--nix-names"]).expect(0);
        assert_eq!(links_in(&prefix.join("bin")).len(), 6);
        machine.script(&["--uninstall"]).expect(0);
        assert!(!prefix.exists(), "{:?}", files_below(&prefix));
    }
}
