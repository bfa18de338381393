//! The package for rpm, installed in an empty root directory.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use floe_testkit::{copy_program, find_tool, run, scratch};

use super::{full_release, in_root, may_mount, release_file};

#[test]
fn package_installs_works_and_leaves_no_file() {
    let Some(release) = full_release() else {
        return;
    };
    let Some(rpm) = find_tool("rpm", "rpm") else {
        return;
    };
    if !may_mount() {
        return;
    }
    let scratch = scratch();
    let root = scratch.join("root");
    fs::create_dir_all(root.join("tmp")).unwrap();
    let suffix = format!(".{}.rpm", std::env::consts::ARCH);
    let package = release_file(&release, "floe-", &suffix);
    let rpm_in_root = |arguments: &[&str]| {
        let mut command = Command::new(&rpm);
        command.arg("--root").arg(&root).args(arguments);
        command
    };
    let needed = run(rpm_in_root(&["--query", "--requires", "--package"]).arg(&package)).expect(0);
    let foreign = needed
        .stdout
        .lines()
        .filter(|line| !line.starts_with("rpmlib("));
    let foreign: BTreeSet<&str> = foreign.collect();
    assert_eq!(foreign, ["/bin/sh"].into());
    run(&mut rpm_in_root(&["--initdb"])).expect(0);
    add_systemctl(&root);
    let systemctl = || {
        let log = root.join("systemctl.log");
        let lines = fs::read_to_string(&log).unwrap();
        fs::remove_file(log).unwrap();
        lines
    };
    // No package provides the shell of this root directory.
    let install = ["-U", "--nosignature", "--nodeps"];
    run(rpm_in_root(&install).arg(&package)).expect(0);
    let installed = "systemd-sysusers floe.conf\ndaemon-reload\n";
    assert_eq!(systemctl(), installed);
    let again = ["--upgrade", "--nodeps", "--replacepkgs"];
    run(rpm_in_root(&again).arg(&package)).expect(0);
    let upgraded = format!("{installed}daemon-reload\ntry-restart floe.service\n");
    assert_eq!(systemctl(), upgraded);
    for file in [
        "usr/share/man/man1/floe-install.1.gz",
        "usr/share/man/man1/nix-serve.1.gz",
        "usr/lib/systemd/system/floe.service",
        "usr/lib/systemd/system/floe.socket",
        "usr/lib/systemd/system/floe-metrics.socket",
        "usr/lib/sysusers.d/floe.conf",
        "usr/share/licenses/floe/THIRD-PARTY.gz",
        "usr/share/doc/floe/docs/operating.md",
        "usr/share/doc/floe/examples/floe-alerts.yml",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    run(&mut in_root(&root, 0, &["/usr/bin/floe", "demo"])).expect(0);
    run(&mut rpm_in_root(&["--erase", "floe"])).expect(0);
    assert_eq!(
        systemctl(),
        "--no-reload disable floe.service floe.socket floe-metrics.socket\n\
         stop floe.socket floe-metrics.socket floe.service\ndaemon-reload\n"
    );
    let mut find = Command::new("find");
    find.arg(&root).args(["-name", "*floe*"]);
    assert_eq!(run(&mut find).expect(0).stdout, "");
}

/// Adds a shell, rmdir, programs of systemd that record their arguments, and the sign of a running
/// systemd.
fn add_systemctl(root: &Path) {
    for directory in ["bin", "usr/bin", "run/systemd/system"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let libraries = run(Command::new("ldd").args(["/bin/sh", "/bin/rmdir"]))
        .expect(0)
        .stdout;
    let libraries = libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'));
    for file in libraries.chain(["/bin/sh", "/bin/rmdir"]) {
        let copy = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        copy_program(Path::new(file), &copy);
    }
    for (name, prefix) in [("systemctl", ""), ("systemd-sysusers", "systemd-sysusers ")] {
        let program = root.join("usr/bin").join(name);
        let script = format!("#!/bin/sh\necho \"{prefix}$*\" >> /systemctl.log\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
