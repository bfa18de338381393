//! Stores, profiles and caches that older versions have written, in `tests/upgrade`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Scratch, nixes, run, scratch};

use crate::support::floe;

/// The files that one version has written.
struct Written {
    directory: PathBuf,
    key: String,
    scratch: Scratch,
}

impl Written {
    fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// Returns the full name of a path in the store.
    fn path(&self, name: &str) -> String {
        let names = fs::read_dir(self.store().join("nix/store")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let found = names.find(|found| found.ends_with(name)).unwrap();
        format!("/nix/store/{found}")
    }
}

/// Unpacks what each version has written.
fn written() -> Vec<Written> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade");
    let entries = fs::read_dir(directory).unwrap();
    let archives = entries.map(|entry| entry.unwrap().path());
    let archives = archives.filter(|path| path.extension().is_some_and(|it| it == "gz"));
    let written: Vec<Written> = archives
        .map(|archive| {
            let scratch = scratch();
            let mut tar = Command::new("tar");
            tar.args(["--extract", "--preserve-permissions", "--file"]);
            run(tar.arg(&archive).arg("--directory").arg(scratch.path())).expect(0);
            let name = archive.file_name().unwrap().to_str().unwrap();
            let directory = scratch.join(name.strip_suffix(".tar.gz").unwrap());
            let key = fs::read_to_string(directory.join("key")).unwrap();
            Written {
                key: key.trim().to_owned(),
                directory,
                scratch,
            }
        })
        .collect();
    assert!(!written.is_empty());
    written
}

#[test]
fn stores_and_profiles_of_older_versions_are_used() {
    for written in written() {
        let root = written.store().display().to_string();
        let verified = run(&mut floe(["verify", "--root", &root])).expect(0);
        assert!(verified.stderr.contains("2 paths"), "{}", verified.stderr);
        let profile = written.store().join("nix/var/nix/profiles/demo");
        let profile = profile.to_str().unwrap();
        let mut list = floe(["profile", "list", "--root", &root, "--profile", profile]);
        assert_eq!(run(&mut list).expect(0).stdout.lines().count(), 2);
        let mut rollback = floe(["profile", "rollback", "--root", &root, "--profile", profile]);
        run(&mut rollback).expect(0);
        let roots = run(&mut floe(["roots", "--root", &root])).expect(0).stdout;
        assert!(roots.contains("demo-1-link"), "{roots}");
        let tool = written.path("-demo-tool-1.0");
        let ran = run(&mut floe(["run", "--root", &root, &tool])).expect(0);
        assert_eq!(ran.stdout, "demo\n");
        for nix in nixes() {
            nix.verify(&written.store(), 2);
        }
    }
}

#[test]
fn caches_of_older_versions_are_sources_and_targets() {
    for written in written() {
        for cache in ["cache-zstd", "cache-xz"] {
            let url = format!("file://{}", written.directory.join(cache).display());
            let root = written.scratch.join(cache);
            let mut install = floe(["install", "--from", &url, "--trusted-public-keys"]);
            install.args([&written.key, "--root"]).arg(&root);
            let installed = run(install.arg(written.path("-demo-tool-1.0"))).expect(0);
            assert!(installed.stderr.contains("installed 2 paths"));
            for nix in nixes() {
                nix.verify(&root, 2);
            }
            // The cache has all paths.
            let mut copy = floe(["copy", "--no-check-sigs", "--all", "--from"]);
            let copied = run(copy.arg(written.store()).args(["--to", &url])).expect(0);
            let line = "nothing to do: all 2 paths are present";
            assert!(copied.stderr.contains(line), "{}", copied.stderr);
        }
    }
}
