//! The packaged units of `floe serve` and their drop-ins: they give few rights away, systemd
//! accepts them, and the documents do not repeat them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Scratch, find_tool, run, scratch};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the names and contents of the packaged files whose names end with one of the suffixes.
fn packaged(suffixes: &[&str]) -> Vec<(String, String)> {
    let entries = fs::read_dir(repository().join("packaging/systemd")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    });
    let is_wanted = |name: &str| suffixes.iter().any(|suffix| name.ends_with(*suffix));
    let found: Vec<_> = files.filter(|(name, _)| is_wanted(name)).collect();
    assert!(!found.is_empty(), "no file ends with {suffixes:?}");
    found
}

/// Returns each packaged drop-in, and an empty one for the unit as it is.
fn drop_ins() -> Vec<(String, String)> {
    let mut all = packaged(&[".conf"]);
    all.push(("no drop-in".to_owned(), String::new()));
    all
}

/// Returns a root directory with the packaged units, of which a drop-in changes the service.
fn root_with_units(drop_in: &str) -> Scratch {
    let root = scratch();
    let units = root.join("etc/systemd/system");
    fs::create_dir_all(units.join("floe.service.d")).unwrap();
    for (name, text) in packaged(UNIT_SUFFIXES) {
        fs::write(units.join(name), text).unwrap();
    }
    fs::write(units.join("floe.service.d/override.conf"), drop_in).unwrap();
    for target in ["basic", "network", "shutdown", "sockets", "sysinit"] {
        fs::write(units.join(format!("{target}.target")), "[Unit]\n").unwrap();
    }
    let programs = root.join("usr/bin");
    fs::create_dir_all(&programs).unwrap();
    for name in ["floe", "kill"] {
        let program = programs.join(name);
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    root
}

/// Returns the exposure level that systemd computes, in tenths.
fn exposure(analyze: &Path, drop_in: &str) -> u32 {
    let root = root_with_units(drop_in);
    let mut command = Command::new(analyze);
    command.args(["security", "--offline=true", "--no-pager"]);
    let root = format!("--root={}", root.path().display());
    let output = run(command.args([&root, "floe.service"])).stdout;
    let line = output
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let line = line.unwrap_or_else(|| panic!("{output}"));
    let level = line.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    level.replace('.', "").parse().unwrap()
}

#[test]
fn unit_and_drop_ins_expose_little() {
    let Some(analyze) = find_tool("systemd-analyze", "systemd") else {
        return;
    };
    for (name, text) in drop_ins() {
        let level = exposure(&analyze, &text);
        let max = if name == STORE_DROP_IN {
            30
        } else {
            EXPOSURE_MAX
        };
        assert!(level <= max, "{name}: {level}");
    }
}

#[test]
fn units_and_drop_ins_have_no_mistakes() {
    let Some(analyze) = find_tool("systemd-analyze", "systemd") else {
        return;
    };
    for (name, text) in drop_ins() {
        let root = root_with_units(&text);
        let mut verify = Command::new(&analyze);
        verify.args(["verify", "--man=no"]);
        verify.arg(format!("--root={}", root.path().display()));
        verify.args(packaged(UNIT_SUFFIXES).into_iter().map(|(unit, _)| unit));
        let ran = run(&mut verify);
        // An unknown key is only a warning.
        assert_eq!(ran.stderr, "", "{name}");
        ran.expect(0);
    }
}

#[test]
fn sysusers_file_makes_the_user_of_the_drop_ins() {
    let Some(sysusers) = find_tool("systemd-sysusers", "systemd") else {
        return;
    };
    let root = scratch();
    let mut make = Command::new(sysusers);
    make.arg("--dry-run");
    make.arg(format!("--root={}", root.path().display()));
    make.arg(repository().join("packaging/systemd/floe.sysusers"));
    run(&mut make)
        .expect(0)
        .stderr_contains("Creating user 'floe'");
    for (name, text) in packaged(&[".conf"]) {
        let mut users = text.lines().filter_map(|line| line.strip_prefix("User="));
        let expected = if name == STORE_DROP_IN {
            "root"
        } else {
            "floe"
        };
        assert!(users.all(|user| user == expected), "{name}");
    }
}

#[test]
fn service_waits_for_a_slow_start_and_reloads() {
    let (_, unit) = packaged(&["floe.service"]).remove(0);
    let lines: Vec<&str> = unit.lines().collect();
    assert!(lines.contains(&"TimeoutStartSec=infinity"), "{unit}");
    assert!(lines.contains(&"ExecReload=kill -HUP $MAINPID"), "{unit}");
    // The server knows the socket by this name.
    let (_, metrics) = packaged(&["floe-metrics.socket"]).remove(0);
    assert!(metrics.contains("\nFileDescriptorName=metrics\n"));
}

/// Of the code in the document, only drop-ins change units, and those for the service are packaged.
#[test]
fn document_refers_to_the_packaged_units() {
    let document = fs::read_to_string(repository().join("docs/operating.md")).unwrap();
    for (name, _) in packaged(&[""]) {
        let link = format!("](../packaging/systemd/{name})");
        assert!(document.contains(&link), "the document has no link {link}");
    }
    let examples = packaged(&[".conf"]);
    // Text and code take turns.
    for code in document.split("```").skip(1).step_by(2) {
        assert!(!code.contains("[Install]"), "a repeated unit: {code}");
        if code.contains("[Service]") {
            let lines = code.lines().map(|line| format!("{}\n", line.trim()));
            let text: String = lines.collect();
            let mut texts = examples.iter().map(|(_, text)| text.trim());
            assert!(texts.any(|it| it == text.trim()), "not packaged: {code}");
        }
    }
}

/// The suffixes of units.
const UNIT_SUFFIXES: &[&str] = &[".service", ".socket"];

/// The drop-in whose server writes to the store, as only root may.
const STORE_DROP_IN: &str = "receive-into-store.conf";

/// 1.5 of 10. systemd calls a service with less than 5 safe enough.
const EXPOSURE_MAX: u32 = 15;
