//! Messages about signatures and content.

use floe_transfer::Error;

use super::*;

fn untrusted(signed_by: &[&str]) -> Error {
    Error::Untrusted {
        path: path("hello-2.12"),
        source_name: "https://cache.example.org".into(),
        signed_by: signed_by.iter().map(ToString::to_string).collect(),
        trusted: vec!["cache.nixos.org-1".into(), "team-1".into()],
    }
}

#[test]
fn trust_errors_name_a_remedy_for_their_cause() {
    check(
        untrusted(&[]),
        &expect![
            "cannot trust 00000000000000000000000000000000-hello-2.12 from https://cache.example.org: it has no signature; try --no-check-sigs if you trust the source completely, or sign the path (nix store sign, or floe copy into a cache with secret-key=FILE)"
        ],
    );
    check(
        untrusted(&["other-1"]),
        &expect![
            "cannot trust 00000000000000000000000000000000-hello-2.12 from https://cache.example.org: it is signed by other-1, the trusted keys are cache.nixos.org-1, team-1; if you trust its maker, add the key with --extra-trusted-public-keys NAME:KEY, or for good in nix.conf: extra-trusted-public-keys = NAME:KEY"
        ],
    );
    check(
        untrusted(&["other-1", "team-1"]),
        &expect![
            "cannot trust 00000000000000000000000000000000-hello-2.12 from https://cache.example.org: its signature by team-1 does not fit the trusted key team-1: it is another key of this name, or the metadata of the path was changed; compare the key with the one that the operator of the cache publishes"
        ],
    );
    check(
        Error::Mismatch {
            path: path("hello-2.12"),
            url: "https://cache.example.org/nar/0.nar".into(),
            what: "NAR hash",
            expected: "sha256:a".into(),
            actual: "sha256:b".into(),
        },
        &expect![
            "cannot accept 00000000000000000000000000000000-hello-2.12 from https://cache.example.org/nar/0.nar: the NAR hash is sha256:b, not sha256:a"
        ],
    );
}
