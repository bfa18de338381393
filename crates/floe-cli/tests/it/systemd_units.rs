//! The packaged unit of `floe serve`, and the drop-ins of the documents, give few rights away.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{find_tool, run, scratch};

/// Returns the blocks of a document that change a unit.
fn drop_ins(document: &str) -> Vec<String> {
    let mut blocks = document.split("```");
    let mut found = Vec::new();
    // Text and code take turns.
    while let (Some(_), Some(code)) = (blocks.next(), blocks.next()) {
        if code.contains("[Service]") {
            let lines = code.lines().map(|line| format!("{}\n", line.trim()));
            found.push(lines.collect());
        }
    }
    found
}

/// Returns the exposure level that systemd computes, in tenths.
fn exposure(unit: &str, drop_in: Option<&str>) -> Option<u32> {
    let analyze = find_tool("systemd-analyze", "systemd")?;
    let root = scratch();
    let units = root.join("etc/systemd/system");
    fs::create_dir_all(units.join("floe.service.d")).unwrap();
    fs::write(units.join("floe.service"), unit).unwrap();
    if let Some(text) = drop_in {
        fs::write(units.join("floe.service.d/override.conf"), text).unwrap();
    }
    let mut command = Command::new(analyze);
    command.args(["security", "--offline=true", "--no-pager"]);
    let root = format!("--root={}", root.path().display());
    let output = run(command.args([&root, "floe.service"])).stdout;
    let line = output
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let line = line.unwrap_or_else(|| panic!("{output}"));
    let level = line.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    Some(level.replace('.', "").parse().unwrap())
}

#[test]
fn unit_and_drop_ins_expose_little() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let unit = read("packaging/systemd/floe.service");
    let Some(level) = exposure(&unit, None) else {
        return;
    };
    assert!(level <= EXPOSURE_MAX, "{level}");
    assert!(unit.contains("ExecReload="));
    let drop_ins = drop_ins(&read("docs/operating.md"));
    assert!(!drop_ins.is_empty(), "the document has no drop-in");
    let example = read("packaging/systemd/internet.conf");
    assert!(drop_ins.iter().any(|text| text.trim() == example.trim()));
    for text in drop_ins {
        let level = exposure(&unit, Some(&text)).unwrap();
        assert!(level <= EXPOSURE_MAX, "{level}: {text}");
    }
}

/// 1.6 of 10.
const EXPOSURE_MAX: u32 = 16;
