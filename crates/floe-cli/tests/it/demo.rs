//! `floe demo` runs to completion and removes its files.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use floe_testkit::{nixes, run, scratch};

use crate::support::floe;

#[test]
fn demo_runs_the_installed_program_and_removes_its_files() {
    let scratch = scratch();
    let ran = run(floe(["demo"]).env("TMPDIR", scratch.path()).env("PATH", "")).expect(0);
    for part in [
        "installed 5 paths",
        "no problem",
        "its version is \"floe ",
        "refused it",
    ] {
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn nix_accepts_the_stores_of_a_kept_demo() {
    let scratch = scratch();
    let kept = scratch.join("kept");
    run(floe(["demo", "--keep"]).arg(&kept)).expect(0);
    for nix in nixes() {
        nix.verify(&kept.join("source"), 5);
        nix.verify(&kept.join("installed"), 5);
    }
    run(floe(["demo", "--keep"]).arg(&kept))
        .expect(1)
        .stderr_contains("cannot create the directory");
}

#[test]
fn interrupted_demo_removes_its_files() {
    let scratch = scratch();
    let mut demo = floe(["demo"]);
    demo.env("TMPDIR", scratch.path()).stdout(Stdio::piped());
    let mut child = demo.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("made a store"), "{line}");
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}
