//! Power cuts while a collection deletes paths, and while an optimisation links files.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use floe_testkit::{Corpus, corpus, nixes, run};

use super::{kinds, record_after};
use crate::support::floe;

fn floe_at(place: &Path, command: &str) -> Command {
    let mut command = floe([command, "--root"]);
    command.arg(place.join("root"));
    command
}

fn install(corpus: &Corpus, place: &Path) {
    let mut install = floe_at(place, "install");
    install.args(["--no-check-sigs", "--from", &corpus.file_url("zstd")]);
    run(install.arg(&corpus.root)).expect(0);
}

/// Keeps a part of the closure.
fn keep(corpus: &Corpus, place: &Path) {
    let kept = &corpus.paths[corpus.paths.len() / 2];
    symlink(kept, place.join("root/nix/var/nix/gcroots/kept")).unwrap();
}

#[test]
fn collection_leaves_no_row_without_files_after_a_power_cut() {
    let Some(corpus) = corpus("jq") else { return };
    for kind in kinds() {
        let prepare = |place: &Path| {
            install(&corpus, place);
            keep(&corpus, place);
        };
        let (mut cuts, mut numbers) = (0, std::collections::BTreeSet::new());
        // Now and then a whole collection reaches the disk at once, so that no cut falls into it.
        for _ in 0..3 {
            let Some(recording) = record_after(*kind, prepare, |place| floe_at(place, "gc")) else {
                return;
            };
            recording.for_each_cut(|place, cut| {
                let mut verify = floe_at(place, "verify");
                let verified = run(verify.arg("--json"));
                assert_eq!(verified.code, Some(0), "{cut}: {}", verified.stdout);
                numbers.insert(verified.json()["paths"].as_u64().unwrap());
                run(&mut floe_at(place, "gc")).expect(0);
                for nix in nixes() {
                    nix.verify(&place.join("root"), 1);
                }
                cuts += 1;
            });
            if numbers.len() > 1 {
                break;
            }
        }
        assert!(
            cuts > 0 && numbers.len() > 1,
            "{cuts} cuts left {numbers:?} paths"
        );
    }
}

#[test]
fn optimisation_changes_no_contents_after_a_power_cut() {
    let Some(corpus) = corpus("jq") else { return };
    for kind in kinds() {
        let prepare = |place: &Path| install(&corpus, place);
        let optimise = |place: &Path| floe_at(place, "optimise");
        let Some(recording) = record_after(*kind, prepare, optimise) else {
            return;
        };
        let mut cuts = 0;
        recording.for_each_cut(|place, cut| {
            let verified = run(floe_at(place, "verify").arg("--json"));
            assert_eq!(verified.code, Some(0), "{cut}: {}", verified.stdout);
            let paths = verified.json()["paths"].as_u64();
            assert_eq!(paths, Some(corpus.paths.len() as u64), "{cut}");
            run(&mut floe_at(place, "optimise")).expect(0);
            cuts += 1;
        });
        assert!(cuts > 0);
    }
}
