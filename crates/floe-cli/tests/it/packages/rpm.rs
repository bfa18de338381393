//! The package for rpm, installed in an empty root directory.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{find_tool, run, scratch};

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
    assert_eq!(foreign.collect::<Vec<_>>(), [""; 0]);
    run(&mut rpm_in_root(&["--initdb"])).expect(0);
    let log = root.join("systemctl.log");
    add_systemctl(&root);
    run(rpm_in_root(&["--install"]).arg(&package)).expect(0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "daemon-reload\n");
    for file in [
        "usr/share/man/man1/floe-install.1.gz",
        "usr/share/man/man1/nix-serve.1.gz",
        "usr/lib/systemd/system/floe.service",
        "usr/share/licenses/floe-THIRD-PARTY.gz",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    run(&mut in_root(&root, 0, &["/usr/bin/floe", "demo"])).expect(0);
    fs::remove_file(&log).unwrap();
    run(&mut rpm_in_root(&["--erase", "floe"])).expect(0);
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "--no-reload disable floe.service\nstop floe.service\ndaemon-reload\n"
    );
    let mut find = Command::new("find");
    find.arg(&root).args(["-name", "*floe*"]);
    assert_eq!(run(&mut find).expect(0).stdout, "");
}

/// Adds a systemctl that records its arguments, and the sign of a running systemd. The root
/// directory has no shell and no libraries, so the program is static.
fn add_systemctl(root: &Path) {
    let source = root.join("tmp/systemctl.c");
    let text = r#"
        #include <stdio.h>
        int main(int count, char **arguments) {
            FILE *log = fopen("/systemctl.log", "a");
            for (int i = 1; i < count; i++)
                fprintf(log, "%s%c", arguments[i], i + 1 < count ? ' ' : '\n');
            return fclose(log);
        }"#;
    fs::write(&source, text).unwrap();
    fs::create_dir_all(root.join("run/systemd/system")).unwrap();
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    let program = root.join("usr/bin/systemctl");
    run(Command::new("cc")
        .args(["-static", "-o"])
        .arg(program)
        .arg(source))
    .expect(0);
}
