//! Stores with paths that Nix has made itself: their names follow from their contents, or no cache
//! has them.

use std::fs;
use std::path::Path;
use std::process::Command;

use floe_testkit::{Nix, nixes, run, scratch};
use serde_json::Value;

use super::{count, left_out};
use crate::support::floe;

/// Sources, texts and derivations, and a package with two outputs that refer to each other.
const EXPRESSION: &str = r#"
let
  source = builtins.path { path = ./tree; name = "tree"; };
  text = builtins.toFile "text" "refers to ${source}";
in derivation {
  name = "package";
  system = builtins.currentSystem;
  builder = "/bin/sh";
  outputs = [ "out" "doc" ];
  args = [ "-c" "echo ${text} $doc > $out; echo doc > $doc" ];
}
"#;

struct Place<'a> {
    nix: &'a Nix,
    dir: &'a Path,
}

impl Place<'_> {
    fn set_store(&self, command: &mut Command) {
        command
            .current_dir(self.dir)
            .env("NIX_STORE_DIR", self.dir.join("store"))
            .env("NIX_STATE_DIR", self.dir.join("var/nix"))
            .env("NIX_LOG_DIR", self.dir.join("var/log"));
    }

    fn nix(&self, tool: &str, args: &[&str]) -> String {
        let mut settings = String::from("experimental-features = nix-command ca-derivations\n");
        // Some builds of the newest Nix cannot start themselves as their own build hook.
        if !self.nix.is_2_8() {
            settings += "build-hook =\n";
        }
        let mut command = self.nix.command(tool, args);
        self.set_store(command.env("NIX_CONFIG", settings));
        run(&mut command).expect(0).stdout.trim().to_owned()
    }

    fn rebuild(&self, args: &[&str]) -> Command {
        let mut command = floe(["rebuild-db", "--json", "--option", "substituters", ""]);
        self.set_store(command.args(args));
        command
    }

    /// Returns the number of lines in Nix's own dump of the database.
    fn dump_len(&self) -> usize {
        self.nix("nix-store", &["--dump-db"]).lines().count()
    }

    /// Writes the source and the derivations of the package. Returns its derivation.
    fn instantiate(&self) -> String {
        fs::create_dir(self.dir.join("tree")).unwrap();
        fs::write(self.dir.join("tree/file"), "contents").unwrap();
        fs::write(self.dir.join("package.nix"), EXPRESSION).unwrap();
        self.nix("nix-instantiate", &["package.nix"])
    }

    fn references(&self, path: &str) -> Vec<String> {
        let text = self.nix("nix-store", &["--query", "--references", path]);
        let mut references: Vec<String> = text.lines().map(str::to_owned).collect();
        references.sort();
        references
    }

    fn lose_database(&self) {
        fs::remove_dir_all(self.dir.join("var/nix/db")).unwrap();
    }
}

#[test]
fn paths_whose_names_follow_from_their_contents_need_no_cache() {
    for nix in &nixes() {
        let scratch = scratch();
        let dir = scratch.path();
        let place = Place { nix, dir };
        let drv = place.instantiate();
        let mut paths = vec![drv.clone()];
        for algorithm in ["md5", "sha1", "sha256", "sha512"] {
            let name = format!("flat-{algorithm}");
            fs::write(dir.join(&name), &name).unwrap();
            paths.push(place.nix("nix-store", &["--add-fixed", algorithm, &name]));
        }
        paths.push(place.nix(
            "nix-store",
            &["--add-fixed", "--recursive", "sha256", "tree"],
        ));
        let before = place.dump_len();
        let references: Vec<_> = paths.iter().map(|path| place.references(path)).collect();
        assert!(!references[0].is_empty());
        place.lose_database();
        let report = run(&mut place.rebuild(&[])).expect(0).json();
        assert!(count(&report, "contentAddressed") >= 7, "{report}");
        assert_eq!(place.dump_len(), before);
        for (path, references) in paths.iter().zip(references) {
            assert_eq!(place.references(path), references, "{path}");
        }
        place.nix("nix-store", &["--verify", "--check-contents"]);
        // Nix builds from the derivation, whose outputs are registered.
        let built = place.nix("nix-store", &["--realise", &drv]);
        assert_eq!(built.lines().count(), 2);
    }
}

#[test]
fn built_paths_are_left_out_or_registered_with_their_references() {
    for nix in &nixes() {
        let scratch = scratch();
        let dir = scratch.path();
        let place = Place { nix, dir };
        let drv = place.instantiate();
        let built = place.nix("nix-store", &["--realise", &drv]);
        let outputs: Vec<&str> = built.lines().collect();
        let references: Vec<_> = outputs.iter().map(|path| place.references(path)).collect();
        assert_eq!(references.iter().flatten().count(), 2, "{references:?}");
        place.lose_database();
        let report = run(&mut place.rebuild(&[])).expect(3).json();
        let mut expected: Vec<_> = outputs.iter().map(|path| (*path, "unsigned")).collect();
        expected.sort_unstable();
        assert_eq!(left_out(&report), expected);
        let report = run(&mut place.rebuild(&["--accept-unsigned"]))
            .expect(0)
            .json();
        assert_eq!(count(&report, "unsigned"), 2);
        for (path, references) in outputs.iter().zip(references) {
            assert_eq!(place.references(path), references, "{path}");
        }
        place.nix("nix-store", &["--verify", "--check-contents"]);
        // Nix knows that the derivation is built.
        let again = place.nix("nix-store", &["--realise", &drv]);
        assert_eq!(again, built);
    }
}

/// A path that refers to itself, and whose name follows from its contents.
#[test]
fn content_addressed_path_with_a_self_reference_needs_no_cache() {
    for nix in nixes().iter().filter(|nix| nix.is_2_8()) {
        let scratch = scratch();
        let dir = scratch.path();
        let place = Place { nix, dir };
        let expression = r#"derivation { name = "self"; system = builtins.currentSystem;
            builder = "/bin/sh"; args = [ "-c" "echo $out > $out" ]; }"#;
        fs::write(dir.join("self.nix"), expression).unwrap();
        let drv = place.nix("nix-instantiate", &["self.nix"]);
        let built = place.nix("nix-store", &["--realise", &drv]);
        let made = place.nix(
            "nix",
            &["store", "make-content-addressed", "--json", &built],
        );
        let made: Value = serde_json::from_str(&made).unwrap();
        let made = made["rewrites"][&built].as_str().unwrap().to_owned();
        assert_eq!(place.references(&made), std::slice::from_ref(&made));
        place.lose_database();
        let report = run(&mut place.rebuild(&[])).expect(3).json();
        assert_eq!(left_out(&report), [(&*built, "unsigned")]);
        assert_eq!(place.references(&made), [made]);
    }
}
