//! A collection while a program runs: the program's paths stay.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use floe_testkit::{nixes, run, wait_until};

use crate::support::floe;

use super::programs;

/// Runs a collection in the store below a root.
type Collect = Box<dyn Fn(&Path)>;

#[test]
fn collectors_spare_the_paths_of_a_running_program() {
    let mut compared = 0;
    let floe_gc = |root: &Path| drop(run(floe(["gc", "--root"]).arg(root)).expect(0));
    let mut collectors: Vec<(String, Collect)> = vec![("floe".into(), Box::new(floe_gc))];
    for nix in nixes() {
        let version = nix.version.clone();
        collectors.push((
            version,
            Box::new(move |root| drop(nix.store(root, ["--gc"]))),
        ));
    }
    for (version, collect) in collectors {
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

        collect(&programs.root);
        assert!(
            !place(&garbage).exists(),
            "{}: nothing was collected",
            version
        );
        assert!(place(&programs.tool).exists(), "{}", version);

        fs::write(&end, "").unwrap();
        assert!(child.wait().unwrap().success());
        collect(&programs.root);
        assert!(!place(&programs.tool).exists(), "{}", version);
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
    run(&mut programs.run_tool(&[])).expect(0);
    let files = fs::read_dir(programs.root.join("nix/var/nix/temproots")).unwrap();
    let owners = files.map(|file| file.unwrap().metadata().unwrap().uid());
    let owners: Vec<u32> = owners.collect();
    assert_eq!(owners, [floe_testkit::NOBODY_UID]);
    for nix in nixes() {
        nix.store(&programs.root, ["--gc", "--print-roots"]);
    }
}
