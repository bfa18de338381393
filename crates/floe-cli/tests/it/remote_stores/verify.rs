//! `floe verify` of stores behind daemons, which verify themselves.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use floe_testkit::run;

use super::{Place, with_places};
use crate::resume::first_file;
use crate::support::floe;

/// Fills the store behind a daemon.
fn fill(place: &Place<'_>, uri: &str) {
    let from = place.corpus.file_url("zstd");
    let args = ["copy", "--no-check-sigs", "--from", &from, "--to", uri];
    run(floe(args).arg(&place.corpus.root)).expect(0);
}

/// Changes a file of the requested path.
fn damage(place: &Place<'_>) {
    let real = place.root().join(&place.corpus.root[1..]);
    let file = first_file(&real).unwrap();
    let mut contents = fs::read(&file).unwrap();
    contents.push(b'x');
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::write(&file, contents).unwrap();
}

#[test]
fn daemon_finds_damage_in_its_store() {
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), &place.key_setting());
        let over_ssh = place.program_uri("ssh-ng", "localhost", &place.key_setting());
        fill(place, &daemon.uri());
        let verify = |uri: &str| run(&mut floe(["verify", "--json", "--store", uri]));
        for uri in [&daemon.uri(), &over_ssh] {
            let sound = verify(uri).expect(0);
            assert_eq!(sound.json()["problemsRemain"], false);
        }
        damage(place);
        for uri in [&daemon.uri(), &over_ssh] {
            let damaged = verify(uri);
            let name = &place.corpus.root["/nix/store/".len()..];
            assert!(damaged.stderr.contains(name), "{}", damaged.stderr);
            let damaged = damaged.expect(3);
            assert_eq!(damaged.json()["problemsRemain"], true);
        }
    });
}

/// nix-daemon unregisters paths that have disappeared.
#[test]
fn daemon_repairs_its_store() {
    with_places(|place| {
        let from = place.corpus.file_url("zstd");
        let settings = format!("{}\nsubstituters = {from}", place.key_setting());
        let daemon = place.nix.daemon(&place.root(), &settings);
        fill(place, &daemon.uri());
        damage(place);
        let verify = |more: &[&str]| {
            let mut command = floe(["verify", "--store", &daemon.uri()]);
            run(command.args(more))
        };
        verify(&[]).expect(3);
        verify(&["--repair"]).expect(0);
        verify(&[]).expect(0);
        place.nix.verify(&place.root(), place.corpus.paths.len());
        let disappeared = place.root().join(&place.corpus.root[1..]);
        floe_store::tree::remove_tree(&disappeared).unwrap();
        verify(&[]).expect(0).stderr_contains("disappeared");
        place
            .nix
            .verify(&place.root(), place.corpus.paths.len() - 1);
    });
}

#[test]
fn requests_that_no_daemon_has_are_refused() {
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), &place.key_setting());
        for (more, reason) in [
            (
                &["--repair", &*place.corpus.root][..],
                "repairs whole stores",
            ),
            (&["--repair", "--from", "file:///x"], "its own substituters"),
        ] {
            let mut command = floe(["verify", "--store", &daemon.uri()]);
            run(command.args(more)).expect(2).stderr_contains(reason);
        }
        let serve = place.program_uri("ssh", "localhost", "");
        let mut command = floe(["verify", "--store", &serve]);
        run(&mut command).expect(4).stderr_contains("use ssh-ng://");
    });
}
