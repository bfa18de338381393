//! A collection while a program runs: the program's paths stay.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use floe_testkit::{nixes, ran_in_pid_namespace, run, wait_until};

use crate::support::floe;

use super::programs;

/// Runs a collection in the store below a root.
type Collect = Box<dyn Fn(&Path)>;

#[test]
fn collectors_spare_the_paths_of_a_running_program() {
    if ran_in_pid_namespace() {
        return;
    }
    assert_spared("");
}

#[test]
fn collectors_spare_a_program_that_closes_its_files() {
    if ran_in_pid_namespace() {
        return;
    }
    assert_spared("yes");
}

fn assert_spared(closes: &str) {
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
        command.env("CLOSES", closes);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let mut child = Program(child, end);
        wait_until("the program has started", || started.exists());
        assert_eq!(child.has_temporary_root(), closes.is_empty());

        collect(&programs.root);
        assert!(
            !place(&garbage).exists(),
            "{}: nothing was collected",
            version
        );
        assert!(place(&programs.tool).exists(), "{}", version);

        child.end();
        collect(&programs.root);
        assert!(!place(&programs.tool).exists(), "{}", version);
        compared += 1;
    }
    assert!(compared > 0 || !Path::new("/usr/bin/nix-store").exists());
}

/// A running program and the file that ends it.
struct Program(Child, PathBuf);

impl Program {
    /// Whether the program has the file of its temporary root open.
    fn has_temporary_root(&self) -> bool {
        let descriptors = format!("/proc/{}/fd", self.0.id());
        let links = fs::read_dir(descriptors).unwrap().flatten();
        let mut files = links.filter_map(|link| fs::read_link(link.path()).ok());
        files.any(|file| file.to_string_lossy().contains("/temproots/"))
    }

    fn end(&mut self) {
        fs::write(&self.1, "").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program has ended, unless the test failed.
        let _: std::io::Result<()> = self.0.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.0.wait();
    }
}

/// The owner's collector must be able to read the file.
#[test]
fn temporary_root_of_root_belongs_to_the_owner_of_the_store() {
    if ran_in_pid_namespace() {
        return;
    }
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
