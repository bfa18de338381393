//! Tests of the program. With them, `cargo test --workspace` builds it with the features of all
//! other tests, so that the stage `instructions` compiles nothing twice.

use std::process::Command;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_floe-workloads"))
}

#[test]
fn program_lists_its_workloads() {
    let listed = program().output().unwrap();
    assert!(listed.status.success());
    let names = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(names.lines().count(), 8, "{names}");
    assert!(names.lines().any(|name| name == "narinfos"), "{names}");
}

#[test]
fn short_workload_ends_well() {
    let ran = program().arg("unpack-nar").status().unwrap();
    assert!(ran.success(), "{ran}");
}
