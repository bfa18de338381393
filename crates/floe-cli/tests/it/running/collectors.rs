//! A collection while a program runs: the program's paths stay.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use floe_testkit::{nixes, wait_until};

use super::programs;

#[test]
fn collectors_spare_the_paths_of_a_running_program() {
    let mut compared = 0;
    for nix in nixes() {
        let Some(programs) = programs() else { return };
        let place = |path: &str| programs.root.join(path.trim_start_matches('/'));
        let garbage = programs.scratch.join("garbage");
        fs::write(&garbage, "garbage").unwrap();
        let garbage = super::add(&programs.nix, &programs.root, &garbage);
        let [started, end] = ["started", "end"].map(|name| programs.scratch.join(name));
        let mut command = programs.run_tool(&[]);
        command.env("WAIT", &end).env("STARTED", &started);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        wait_until("the program has started", || started.exists());

        nix.store(&programs.root, ["--gc"]);
        assert!(
            !place(&garbage).exists(),
            "{}: nothing was collected",
            nix.version
        );
        assert!(place(&programs.tool).exists(), "{}", nix.version);

        fs::write(&end, "").unwrap();
        assert!(child.wait().unwrap().success());
        nix.store(&programs.root, ["--gc"]);
        assert!(!place(&programs.tool).exists(), "{}", nix.version);
        compared += 1;
    }
    assert!(compared > 0 || !Path::new("/usr/bin/nix-store").exists());
}

/// The owner's collector must be able to read the file.
#[test]
fn temporary_root_of_root_belongs_to_the_owner_of_the_store() {
    let Some(programs) = programs() else { return };
    // Gives the store to the user.
    let Some(_) = programs.as_nobody(&programs.run_tool(&[])) else {
        return;
    };
    floe_testkit::run(&mut programs.run_tool(&[])).expect(0);
    let files = fs::read_dir(programs.root.join("nix/var/nix/temproots")).unwrap();
    let owners = files.map(|file| file.unwrap().metadata().unwrap().uid());
    let owners: Vec<u32> = owners.collect();
    assert_eq!(owners, [floe_testkit::NOBODY_UID]);
    for nix in nixes() {
        nix.store(&programs.root, ["--gc", "--print-roots"]);
    }
}
