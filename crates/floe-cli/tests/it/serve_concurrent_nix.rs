//! `floe serve` while other processes change the store: Nix, and processes that bypass it.

mod load;
mod locked_database;
mod modified_files;
mod unprivileged_readers;

use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::http_client::{hash_part, narinfo_of};
use floe_testkit::{Corpus, Nix, Scratch, corpus, nixes, run, scratch};

use crate::server_process::ServerProcess;

/// A store that Nix writes.
pub(crate) struct NixStore<'n> {
    pub(crate) nix: &'n Nix,
    pub(crate) scratch: Scratch,
    /// Additional settings of Nix.
    pub(crate) settings: &'n str,
}

impl<'n> NixStore<'n> {
    pub(crate) fn new(nix: &'n Nix, settings: &'n str) -> NixStore<'n> {
        let scratch = scratch();
        NixStore {
            nix,
            scratch,
            settings,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    /// Runs `nix-store` on the store and asserts success.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let mut command = self.nix.command("nix-store", ["--store"]);
        let command = command.arg(self.root()).args(args);
        run(command.env("NIX_CONFIG", self.settings))
            .expect(0)
            .stdout
    }

    /// Adds a file with this name and contents.
    #[track_caller]
    pub(crate) fn add(&self, name: &str, contents: &[u8]) -> String {
        let file = self.scratch.join(name);
        fs::write(&file, contents).unwrap();
        self.run(&["--add", &file.display().to_string()])
            .trim()
            .to_owned()
    }

    /// Adds a tree with many small and large files.
    #[track_caller]
    pub(crate) fn add_tree(&self, name: &str) -> String {
        let tree = self.scratch.join(name);
        fs::create_dir_all(tree.join("deep/er")).unwrap();
        for number in 0..20 {
            let small = format!("{name} {number}").into_bytes();
            fs::write(tree.join(format!("deep/small-{number}")), small).unwrap();
            let large = format!("{name} {number:9}").into_bytes().repeat(2000);
            fs::write(tree.join(format!("deep/er/large-{number}")), large).unwrap();
        }
        self.run(&["--add", &tree.display().to_string()])
            .trim()
            .to_owned()
    }

    /// Copies the closure of a corpus into the store.
    #[track_caller]
    pub(crate) fn copy(&self, corpus: &Corpus) {
        let from = corpus.file_url("none");
        let copy = [
            "copy",
            "--no-check-sigs",
            "--from",
            &from,
            &corpus.root,
            "--to",
        ];
        let mut command = self.nix.command("nix", copy);
        run(command.arg(self.root()).env("NIX_CONFIG", self.settings)).expect(0);
    }

    /// Returns the location of a path on disk.
    pub(crate) fn real(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(crate) fn serve(&self) -> ServerProcess {
        ServerProcess::start(self.root(), &[])
    }
}

/// Returns all request targets of a path.
fn targets(serve: &ServerProcess, path: &str) -> Vec<String> {
    let narinfo = serve.get(&narinfo_of(path));
    let hash = hash_part(path);
    vec![
        narinfo_of(path),
        format!("/{}", narinfo.narinfo_field("URL")),
        format!("/nar/{hash}.nar"),
        format!("/{hash}.ls"),
        format!("/serve/{hash}/"),
    ]
}

#[track_caller]
fn assert_all(serve: &ServerProcess, what: &str, targets: &[String], status: u16) {
    for target in targets {
        assert_eq!(serve.get(target).status, status, "{what}: {target}");
    }
}

#[test]
fn paths_added_and_deleted_by_nix_are_visible_at_once() {
    for nix in &nixes() {
        for settings in ["", "use-sqlite-wal = false"] {
            let store = NixStore::new(nix, settings);
            let first = store.add("first", b"the first");
            let serve = store.serve();
            let mut kept = serve.connect();
            assert_eq!(kept.request("GET", &narinfo_of(&first), "").status, 200);
            for number in 0..6 {
                let name = format!("file-{number}");
                let path = match number % 2 {
                    0 => store.add(&name, name.as_bytes()),
                    _ => store.add_tree(&name),
                };
                let what = format!("{}, {settings:?}, {name}", nix.version);
                assert_eq!(
                    kept.request("GET", &narinfo_of(&path), "").status,
                    200,
                    "{what}"
                );
                let targets = targets(&serve, &path);
                assert_all(&serve, &what, &targets, 200);
                store.run(&["--delete", &path]);
                assert_eq!(
                    kept.request("GET", &narinfo_of(&path), "").status,
                    404,
                    "{what}"
                );
                assert_all(&serve, &what, &targets, 404);
                let again = match number % 2 {
                    0 => store.add(&name, name.as_bytes()),
                    _ => store.add_tree(&name),
                };
                assert_eq!(again, path);
                assert_all(&serve, &what, &targets, 200);
            }
            store.run(&["--gc"]);
            assert_eq!(kept.request("GET", &narinfo_of(&first), "").status, 404);
            assert_eq!(serve.stop(), "");
        }
    }
}

#[test]
fn closure_copied_by_nix_is_served_when_the_copy_ends() {
    let Some(corpus) = corpus("curl") else { return };
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        store.add("first", b"the first");
        let serve = store.serve();
        for path in &corpus.paths {
            assert_eq!(serve.get(&narinfo_of(path)).status, 404);
        }
        store.copy(&corpus);
        let mut client = serve.connect();
        for path in &corpus.paths {
            let narinfo = client.request("GET", &narinfo_of(path), "");
            assert_eq!(narinfo.status, 200, "{}: {path}", nix.version);
            let nar = client.request("GET", &format!("/{}", narinfo.narinfo_field("URL")), "");
            assert_eq!(nar.body.len().to_string(), narinfo.narinfo_field("NarSize"));
        }
        store.run(&["--gc"]);
        for path in &corpus.paths {
            assert_eq!(client.request("GET", &narinfo_of(path), "").status, 404);
        }
        assert_eq!(serve.stop(), "");
    }
}

#[test]
fn added_signature_is_served_at_once() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        let path = store.add("signed", b"signed");
        let serve = store.serve();
        let before = serve.get(&narinfo_of(&path));
        assert!(!before.text().contains("\nSig: "), "{}", before.text());
        let key = corpus.dir.join("key.sec").display().to_string();
        let sign = ["store", "sign", "--key-file", &key, &path, "--store"];
        run(nix.command("nix", sign).arg(store.root())).expect(0);
        let after = serve.get(&narinfo_of(&path));
        let name = corpus.key.split(':').next().unwrap();
        assert!(
            after.narinfo_field("Sig").starts_with(&format!("{name}:")),
            "{}",
            after.text()
        );
        assert_ne!(before.field("ETag"), after.field("ETag"));
        let field = format!("If-None-Match: {}\r\n", before.field("ETag").unwrap());
        assert_eq!(serve.get_with(&narinfo_of(&path), &field).status, 200);
        assert_eq!(serve.stop(), "");
    }
}

/// Removes a sealed tree.
fn remove(path: &Path) {
    floe_store::tree::remove_tree(path).unwrap();
}
