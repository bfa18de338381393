//! `floe nix-copy-closure`, with the options that Nix documents.

use std::fs;
use std::process::Command;

use floe_testkit::{hide_nix_conf, run, sshd_with};

use super::with_places;
use crate::support::floe;

#[test]
fn copies_both_ways_with_each_option_of_nix() {
    with_places(|place| {
        let root = place.root();
        // The store of the other machine.
        let Some(server) = sshd_with(&format!("SetEnv NIX_REMOTE={}", root.display())) else {
            return;
        };
        let name = place.scratch.join("nix-copy-closure");
        std::os::unix::fs::symlink(floe([""; 0]).get_program(), &name).unwrap();
        let options = format!("{} -p {}", server.options(), server.port());
        let copy = |words: &[&str]| {
            let mut command = Command::new(&name);
            command.args(words).args(["127.0.0.1", &place.corpus.root]);
            hide_nix_conf(&mut command);
            run(command.env("NIX_SSHOPTS", &options)).expect(0)
        };
        // Each option that Nix documents.
        let local = place.corpus.store().display().to_string();
        let flags = ["--gzip", "--show-progress", "-s", "--include-outputs", "-v"];
        copy(&[&["--to", "--store", &local][..], &flags].concat());
        place.nix.verify(&root, place.corpus.paths.len());
        let back = place.scratch.join("back");
        let back_text = back.display().to_string();
        let ran = copy(&[
            "--from",
            "--bzip2",
            "--use-substitutes",
            "--root",
            &back_text,
        ]);
        assert!(ran.stderr.contains("mean --gzip"), "{}", ran.stderr);
        place.nix.verify(&back, place.corpus.paths.len());
        let version = run(Command::new(&name).arg("--version")).expect(0).stdout;
        assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
        let help = run(Command::new(&name).arg("--help")).expect(0).stdout;
        assert_eq!(
            help.matches("nix-copy-closure [OPTIONS]").count(),
            1,
            "{help}"
        );
    });
}

/// Nix's option for the outputs of derivations in the closures.
#[test]
fn valid_outputs_are_included() {
    with_places(|place| {
        let (root, local) = (place.root(), place.scratch.join("local"));
        let Some(server) = sshd_with(&format!("SetEnv NIX_REMOTE={}", root.display())) else {
            return;
        };
        let expression = "derivation { name = \"x\"; system = \"x\"; builder = \"/bin/x\"; \
                          outputs = [ \"out\" \"doc\" ]; }";
        let mut instantiate = place.nix.command("nix-instantiate", ["-E", expression]);
        let made = run(instantiate.arg("--store").arg(&local)).expect(0).stdout;
        let derivation = made.trim().split('!').next().unwrap();
        let outputs = place.nix.store(&local, ["-q", "--outputs", derivation]);
        // Only one of them is valid.
        let outputs: Vec<&str> = outputs.lines().collect();
        let [built, other] = *outputs else {
            panic!("{outputs:?}")
        };
        let file = local.join(&built[1..]);
        fs::write(&file, "built").unwrap();
        let ask = |tool: &str, words: &[&str]| {
            let mut command = place.nix.command(tool, words);
            run(command.arg(&file)).expect(0).stdout
        };
        let (nar, hash) = (
            ask("nix-store", &["--dump"]),
            ask("nix-hash", &["--type", "sha256"]),
        );
        let registration = place.scratch.join("registration");
        let row = [
            built,
            hash.trim(),
            &nar.len().to_string(),
            derivation,
            "0\n",
        ]
        .join("\n");
        fs::write(&registration, row).unwrap();
        let mut register = place.nix.command("nix-store", ["--load-db", "--store"]);
        register
            .arg(&local)
            .stdin(fs::File::open(registration).unwrap());
        run(&mut register).expect(0);
        let copy = |more: &[&str]| {
            let mut command = floe(["nix-copy-closure", "--to", "--store"]);
            command
                .arg(&local)
                .args(more)
                .args(["127.0.0.1", derivation]);
            let options = format!("{} -p {}", server.options(), server.port());
            run(command.env("NIX_SSHOPTS", options)).expect(0)
        };
        let is_there = |path: &str| root.join(&path[1..]).exists();
        copy(&[]);
        assert_eq!(
            [derivation, built, other].map(is_there),
            [true, false, false]
        );
        copy(&["--include-outputs"]);
        assert_eq!(
            [derivation, built, other].map(is_there),
            [true, true, false]
        );
        place.nix.verify(&root, 2);
    });
}
