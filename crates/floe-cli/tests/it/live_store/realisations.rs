//! Realisations of content-addressed derivations equal those that Nix writes to a cache.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_format::{DrvKey, DrvOutput, Hash, StoreDir, StorePath};
use floe_store::{LiveStore, StoreLayout};
use floe_testkit::{Nix, nixes, run, scratch};

use super::{NixStore, TIMEOUT};

/// A derivation with two outputs and one dependency.
pub(crate) const EXPRESSION: &str = r#"
let
  make = attributes: derivation ({
    system = builtins.currentSystem;
    builder = "/bin/sh";
    __contentAddressed = true;
    outputHashMode = "recursive";
    outputHashAlgo = "sha256";
  } // attributes);
  tool = make { name = "tool"; args = [ "-c" "echo tool > $out" ]; };
in make {
  name = "product";
  outputs = [ "out" "doc" ];
  args = [ "-c" "echo ${tool} > $out; echo doc > $doc" ];
}
"#;

fn command(nix: &Nix, dir: &Path, tool: &str, args: &[&str]) -> Command {
    let mut settings = String::from("experimental-features = nix-command ca-derivations\n");
    settings += &format!("secret-key-files = {}\n", dir.join("key").display());
    // Some builds of the newest Nix cannot start themselves as their own build hook.
    if !nix.version.contains(" 2.8.") {
        settings += "build-hook =\n";
    }
    let mut command = nix.command(tool, args);
    command
        .current_dir(dir)
        .env("NIX_CONFIG", settings)
        .env("NIX_STORE_DIR", dir.join("store"))
        .env("NIX_STATE_DIR", dir.join("var/nix"))
        .env("NIX_LOG_DIR", dir.join("var/log"));
    command
}

#[test]
fn realisation_json_equals_that_of_nix() {
    for nix in &nixes() {
        let scratch = scratch();
        let dir = scratch.path();
        fs::write(scratch.join("ca.nix"), EXPRESSION).unwrap();
        let keys = ["--generate-binary-cache-key", "key-1", "key", "key.pub"];
        run(&mut command(nix, dir, "nix-store", &keys)).expect(0);
        let build = ["build", "-f", "ca.nix", "--no-link"];
        run(&mut command(nix, dir, "nix", &build)).expect(0);
        let cache = format!("file://{}", scratch.join("cache").display());
        let copy = ["copy", "-f", "ca.nix", "--to", &cache];
        run(&mut command(nix, dir, "nix", &copy)).expect(0);

        let store_dir = StoreDir::new(&scratch.join("store").display().to_string()).unwrap();
        let store = LiveStore::open(StoreLayout::without_root(store_dir), TIMEOUT).unwrap();
        let (mut compared, mut signed) = (0, 0);
        for entry in fs::read_dir(scratch.join("cache/realisations")).unwrap() {
            let file = entry.unwrap().path();
            let id = file.file_stem().unwrap().to_str().unwrap();
            let id = DrvOutput::parse(id).unwrap();
            let found = store.realisation(&id).unwrap().unwrap();
            signed += found.signatures.len();
            let written = fs::read_to_string(&file).unwrap();
            assert_eq!(found.to_json().to_string(), written, "{}", nix.version);
            let other = DrvOutput::new(id.key().clone(), "man").unwrap();
            assert_eq!(store.realisation(&other).unwrap(), None);
            compared += 1;
        }
        assert!(
            compared >= 2 && signed >= 2,
            "{}: {compared}, {signed}",
            nix.version
        );
    }
}

#[test]
fn store_without_realisations_returns_none() {
    for nix in &nixes() {
        let written = NixStore::new(nix, "");
        written.add("path");
        let store = LiveStore::open(written.layout(), TIMEOUT).unwrap();
        let drv = StorePath::parse(&format!("{}-x.drv", "0".repeat(32))).unwrap();
        for key in [DrvKey::Hash(Hash::sha256([0; 32])), DrvKey::Path(drv)] {
            let id = DrvOutput::new(key, "out").unwrap();
            assert_eq!(store.realisation(&id).unwrap(), None);
        }
    }
}
