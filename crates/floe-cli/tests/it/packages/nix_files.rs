//! `flake.nix`, the overlay and the package, evaluated by real Nix with a stub of nixpkgs.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{Nix, nixes, run, scratch};

use super::{linked_names, links_in, repository};

/// Functions of nixpkgs that return what they were given.
const STUB: &str = r#"rec {
  lib = {
    cleanSource = path: path;
    cleanSourceWith = { src, filter }:
      assert !filter (toString src + "/target") "directory";
      assert filter (toString src + "/crates") "directory";
      src;
    optionalString = condition: text: if condition then text else "";
    licenses = { mit = "MIT"; asl20 = "Apache-2.0"; };
  };
  rustPlatform.buildRustPackage = attributes: attributes // { isBuilt = true; };
  installShellFiles = "installShellFiles";
  callPackage = file: given:
    let
      make = import file;
      wanted = builtins.functionArgs make;
      all = { inherit lib rustPlatform installShellFiles; };
    in make (builtins.intersectAttrs wanted all // given);
}"#;

/// Returns the fields of the package that the tests look at.
const FIELDS: &str = r#"p: {
  inherit (p) pname version isBuilt;
  inherit (p.meta) mainProgram license homepage;
  lock = builtins.pathExists p.cargoLock.lockFile;
  source = builtins.pathExists (p.src + "/Cargo.toml");
}"#;

fn assert_package(json: &str) {
    let package: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(package["pname"], "floe");
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(package["mainProgram"], "floe");
    assert_eq!(package["license"].as_array().unwrap().len(), 2);
    assert!(package["homepage"].as_str().unwrap().contains("://"));
    assert_eq!(package["lock"], true);
    assert_eq!(package["source"], true);
    assert_eq!(package["isBuilt"], true);
}

/// Evaluates an expression in a directory, and returns its value as JSON.
fn evaluate(nix: &Nix, expression: &str, directory: &Path) -> String {
    let mut command = nix.command("nix-instantiate", ["--eval", "--strict", "--json"]);
    command.args(["--store", "dummy://", "--expr", expression]);
    run(command.current_dir(directory)).expect(0).stdout
}

#[test]
fn package_and_overlay_evaluate() {
    let overlay = repository().join("packaging/nix/overlay.nix");
    let overlay = overlay.canonicalize().unwrap();
    let expression = format!(
        "let stub = {STUB}; all = stub // import {} all stub; in ({FIELDS}) all.floe",
        overlay.display()
    );
    for nix in nixes() {
        let scratch = scratch();
        let printed = evaluate(&nix, &expression, scratch.path());
        assert_package(&printed);
    }
}

#[test]
fn package_links_the_names_of_nix_on_demand() {
    let package = repository().join("packaging/nix/package.nix");
    let package = package.canonicalize().unwrap();
    let expression = format!(
        "let stub = {STUB}; \
         make = withNixNames: stub.callPackage {} {{ inherit withNixNames; }}; \
         in [ (make false).postInstall (make true).postInstall ]",
        package.display()
    );
    for nix in nixes() {
        let scratch = scratch();
        let printed = evaluate(&nix, &expression, scratch.path());
        let [plain, linking]: [String; 2] = serde_json::from_str(&printed).unwrap();
        // The module of nix-serve in NixOS runs it.
        assert!(plain.contains("ln -s floe $out/bin/nix-serve\n"), "{plain}");
        let bin = scratch.join("out/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join("floe"), "").unwrap();
        let mut link = Command::new("sh");
        link.args(["-e", "-c", linking.strip_prefix(&plain).unwrap()]);
        run(link.env("out", scratch.join("out"))).expect(0);
        assert_eq!(links_in(&bin), linked_names());
        for name in linked_names() {
            assert!(bin.join(name).exists());
        }
    }
}

#[test]
fn flake_evaluates() {
    for nix in nixes() {
        let scratch = scratch();
        // A copy, because Nix would copy the whole build directory too.
        let flake = scratch.join("flake");
        for file in [
            "flake.nix",
            "Cargo.toml",
            "Cargo.lock",
            "packaging/nix/package.nix",
            "packaging/nix/overlay.nix",
        ] {
            let to = flake.join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(repository().join(file), to).unwrap();
        }
        let stub = scratch.join("nixpkgs");
        fs::create_dir(&stub).unwrap();
        let systems = format!(
            "{{ outputs = _: {{ legacyPackages = let stub = {STUB}; in \
             {{ x86_64-linux = stub; aarch64-linux = stub; }}; }}; }}"
        );
        fs::write(stub.join("flake.nix"), systems).unwrap();
        for system in ["x86_64-linux", "aarch64-linux"] {
            let output = format!("path:{}#packages.{system}.default", flake.display());
            let mut command: Command = nix.command("nix", ["eval", "--json"]);
            command
                .args(["--extra-experimental-features", "nix-command flakes"])
                .args(["--store", &scratch.join("store").display().to_string()])
                .args(["--no-write-lock-file", "--override-input", "nixpkgs"])
                .arg(format!("path:{}", stub.display()))
                .arg(&output)
                .args(["--apply", FIELDS])
                .env("HOME", scratch.path());
            let ran = run(&mut command).expect(0);
            assert_package(&ran.stdout);
        }
    }
}
