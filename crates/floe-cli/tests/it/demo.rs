//! `floe demo` runs to completion and removes its files.

use std::fs;

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
