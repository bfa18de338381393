//! The circumstances that two rows of one run share: floe's binary, the machine, and the peers.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use floe_bench::machine;
use serde_json::{Map, Value, json};

use super::peers::Peer;
use crate::programs;

/// Reads the circumstances of this run.
pub(super) fn read(root: &Path, peers: &[Peer], is_quick: bool) -> Result<Value> {
    let binary = hash(&programs::floe(root)?)?;
    Ok(describe(&binary, peers, is_quick))
}

fn describe(binary: &str, peers: &[Peer], is_quick: bool) -> Value {
    let machine = machine::machine();
    let versions = peers.iter().map(|peer| {
        let version = peer.version.as_ref().ok();
        (peer.name.to_owned(), json!(version))
    });
    json!({
        "floe": binary,
        "quick": is_quick,
        "machine": {
            "cpu": machine["cpu"],
            "cores": machine["cores"],
            "kernel": machine["kernel"],
        },
        "peers": versions.collect::<Map<String, Value>>(),
    })
}

/// The SHA-256 of a file in hexadecimal.
fn hash(file: &Path) -> Result<String> {
    let cannot = || format!("cannot read {}", file.display());
    let mut opened = File::open(file).with_context(cannot)?;
    let mut hasher = floe_hash::Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let len = opened.read(&mut chunk).with_context(cannot)?;
        if len == 0 {
            let digest = hasher.finish();
            return Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hasher.update(&chunk[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_peer_and_rounds_change_the_circumstances() {
        let peers = |version: &str| {
            [Peer {
                name: "nix",
                version: Ok(version.into()),
            }]
        };
        let first = describe("1", &peers("2.8"), false);
        assert_eq!(first, describe("1", &peers("2.8"), false));
        for other in [
            describe("2", &peers("2.8"), false),
            describe("1", &peers("2.9"), false),
            describe("1", &peers("2.8"), true),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn hash_is_that_of_the_contents() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        assert!(hash(file.path()).unwrap().starts_with("ba7816bf"));
    }
}
