//! Power cuts while the first run creates the store.

use std::path::Path;
use std::process::Command;

use floe_testkit::recording_disk::{FileSystemKind, Mount};
use floe_testkit::{Corpus, XorShift, corpus, nixes, run};

use super::{after_restart, boot_id, install, record, verify};
use crate::support::floe;

/// The commands that a user may run first.
const COMMANDS: [&str; 3] = ["verify", "verify --repair", "install --repair"];

fn command(name: &str, corpus: &Corpus, root: &Path) -> Command {
    let from = corpus.file_url("zstd");
    match name {
        "verify" => {
            let mut verify = floe(["verify", "--root"]);
            verify.arg(root);
            verify
        }
        "verify --repair" => {
            let mut verify = floe(["verify", "--repair", "--from", &from]);
            verify.args(["--trusted-public-keys", &corpus.key, "--root"]);
            verify.arg(root);
            verify
        }
        _ => install(corpus, root, ["--repair"]),
    }
}

#[test]
fn store_without_tables_after_power_cut_is_usable() {
    let Some(corpus) = corpus("jq") else { return };
    let root = |place: &Path| place.join("root");
    let install_new = |place: &Path| install(&corpus, &root(place), [] as [&str; 0]);
    let Some(recording) = record(FileSystemKind::Ext4, install_new) else {
        return;
    };
    let boot_id = boot_id(&recording.scratch);
    let place = recording.scratch.join("cut");
    let mut random = XorShift(0x5eed);
    let mut without_tables = 0;
    for cut in 0..CUTS {
        // The first writes of the run create the store.
        let position = recording.begin + (recording.end - recording.begin) * cut / CUTS / 2;
        let image = recording.scratch.join(&format!("image-{cut}"));
        let seed = random.below(usize::MAX) as u64;
        recording.disk.write_image(&image, position, seed);
        let mount = Mount::of_image(&image, &place);
        let root = root(&place);
        let database = root.join("nix/var/nix/db/db.sqlite");
        if !database.exists() {
            continue;
        }
        without_tables += usize::from(database.metadata().unwrap().len() == 0);
        let name = COMMANDS[cut % COMMANDS.len()];
        let ran = run(&mut after_restart(&command(name, &corpus, &root), &boot_id));
        let line = format!("{name} after cut {cut} at {position}: {}", ran.stderr);
        // Damage that only `verify` finds has an exit code of its own.
        let finds = [
            Some(3),
            Some(1).filter(|_| ran.stderr.contains("it has no tables")),
        ];
        assert!(
            ran.code == Some(0) || name == "verify" && finds.contains(&ran.code),
            "{line}"
        );
        run(&mut after_restart(&install_new(&place), &boot_id)).expect(0);
        let found = verify(&root).unwrap();
        assert_eq!(found, (corpus.paths.len() as u64, 0), "{line}");
        if cut == CUTS - 1 {
            for nix in nixes() {
                nix.verify(&root, corpus.paths.len());
            }
        }
        drop(mount);
        std::fs::remove_file(&image).unwrap();
    }
    assert!(
        without_tables > 2,
        "{without_tables} cuts left a database without tables"
    );
}

/// The number of power cuts.
const CUTS: usize = 24;
