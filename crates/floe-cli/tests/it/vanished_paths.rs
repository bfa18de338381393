//! Valid paths whose files are gone from the disk.

use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::http_client::narinfo_of;
use floe_testkit::{CommandOutput, Corpus, Scratch, corpus, nixes, run, scratch};

use crate::server_process::ServerProcess;
use crate::support::floe;

/// A store with the closure of jq.
struct Store {
    corpus: Corpus,
    scratch: Scratch,
}

impl Store {
    fn new() -> Option<Store> {
        let corpus = corpus("jq")?;
        let scratch = scratch();
        let store = Store { corpus, scratch };
        store.install(&[]).expect(0);
        Some(store)
    }

    fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root().join(&path[1..])
    }

    /// Removes the files of a path.
    fn lose(&self, path: &str) {
        floe_store::tree::remove_tree(&self.place(path)).unwrap();
    }

    fn install(&self, options: &[&str]) -> CommandOutput {
        let mut install = floe(["install", "--from", &self.corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        install.arg(self.root()).args(options);
        run(install.arg(&self.corpus.root))
    }

    fn in_store(&self, arguments: &[&str]) -> CommandOutput {
        run(floe(arguments).arg("--root").arg(self.root()))
    }

    fn dependency(&self) -> &str {
        let mut paths = self.corpus.paths.iter();
        paths.find(|path| path.contains("-libonig")).unwrap()
    }

    /// A path without references.
    fn leaf(&self) -> &str {
        let mut paths = self.corpus.paths.iter();
        paths.find(|path| path.contains("-gcc-12-base-")).unwrap()
    }

    /// The URI of a cache without paths.
    fn empty_cache(&self) -> String {
        let empty = self.scratch.join("empty");
        fs::create_dir_all(&empty).unwrap();
        fs::write(empty.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
        format!("file://{}", empty.display())
    }

    fn check(&self) {
        for nix in nixes() {
            nix.verify(&self.root(), self.corpus.paths.len());
        }
    }
}

#[test]
fn install_of_a_vanished_path_fetches_it_again() {
    let Some(store) = Store::new() else { return };
    store.lose(&store.corpus.root);
    let ran = store.install(&["--json"]).expect(0);
    assert_eq!(ran.json()["copied"], 1);
    store.check();
}

#[test]
fn install_with_a_vanished_reference_fetches_it_again() {
    let Some(store) = Store::new() else { return };
    store.lose(store.dependency());
    let planned = store.install(&["--dry-run"]).expect(0);
    assert!(
        planned.stdout.contains("-libonig"),
        "the dry run lists no missing path: {}",
        planned.stdout
    );
    let link = store.scratch.join("result");
    let link = link.to_str().unwrap();
    let ran = store.install(&["--json", "-o", link]).expect(0);
    assert_eq!(ran.json()["copied"], 1);
    assert!(Path::new(link).is_symlink());
    store.check();
    let again = store.install(&["--json"]).expect(0);
    assert_eq!(again.json()["copied"], 0);
}

#[test]
fn verify_removes_rows_of_vanished_paths_without_source() {
    let Some(store) = Store::new() else { return };
    let kept = store.leaf();
    for path in store.corpus.paths.iter().filter(|path| *path != kept) {
        store.lose(path);
    }
    store
        .in_store(&["verify", "--repair", "--from", &store.empty_cache()])
        .expect(0);
    let listed = store.in_store(&["info", "--all"]).expect(0);
    let count = listed.stdout.matches("StorePath: ").count();
    assert_eq!(count, 1, "{}", listed.stdout);
    for nix in nixes() {
        nix.verify(&store.root(), 1);
    }
}

#[test]
fn verify_keeps_rows_if_no_file_of_the_store_is_there() {
    let Some(store) = Store::new() else { return };
    let (mounted, place) = (store.scratch.join("mounted"), store.place("/nix/store"));
    fs::rename(&place, &mounted).unwrap();
    fs::create_dir(&place).unwrap();
    let ran = store.in_store(&["gc", "--dry-run"]).expect(0);
    assert!(
        ran.stderr.contains("keep all paths in the store directory"),
        "{}",
        ran.stderr
    );
    let ran = store.in_store(&["verify", "--repair", "--from", &store.empty_cache()]);
    ran.expect(3).stderr_contains(&format!(
        "no file is there, so its file system may not be mounted; try mount {}",
        place.display()
    ));
    fs::remove_dir_all(&place).unwrap();
    fs::rename(&mounted, &place).unwrap();
    store.in_store(&["verify"]).expect(0);
    store.check();
}

#[test]
fn verify_keeps_rows_of_vanished_paths_if_a_source_fails() {
    let Some(store) = Store::new() else { return };
    store.lose(&store.corpus.root);
    let (empty, cache) = (store.empty_cache(), store.corpus.file_url("zstd"));
    let server = FaultServer::start(&store.corpus.cache("zstd"));
    server.fail(".narinfo", Fault::Status(500));
    let failing = &*server.url();
    let sources: [&[&str]; 6] = [
        &["http://127.0.0.1:1"],
        &["file:///nonexistent"],
        // The other source lacks the path.
        &["file:///nonexistent", &empty],
        &[failing],
        &[&empty, failing],
        // It has the path, and its signature is not trusted.
        &[&empty, &cache],
    ];
    for sources in sources {
        let mut arguments = vec!["verify", "--repair"];
        arguments.extend(["--option", "filetransfer-retry-attempts", "1"]);
        arguments.extend(sources.iter().flat_map(|source| ["--from", source]));
        let ran = store.in_store(&arguments);
        assert_eq!(ran.code, Some(3), "{sources:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("from the database"), "{}", ran.stderr);
        store.in_store(&["info", &store.corpus.root]).expect(0);
    }
    store.install(&[]).expect(0);
    store.check();
}

#[test]
fn verify_keeps_the_row_of_a_vanished_path_in_use() {
    let Some(store) = Store::new() else { return };
    store.lose(store.dependency());
    store
        .in_store(&["verify", "--repair", "--from", &store.empty_cache()])
        .expect(3);
    store.in_store(&["info", store.dependency()]).expect(0);
    store.install(&[]).expect(0);
    store.check();
}

#[test]
fn server_has_no_narinfo_of_a_path_without_files() {
    let Some(store) = Store::new() else { return };
    let (lost, other) = (&store.corpus.root, store.dependency());
    let serve = ServerProcess::start(store.root(), &[]);
    let status = |target: &str| serve.get(target).status;
    // The first request finds the files missing.
    store.lose(lost);
    assert_eq!(status(&narinfo_of(lost)), 404);
    store.install(&[]).expect(0);
    assert_eq!(status(&narinfo_of(lost)), 200);
    // The narinfo is in the cache, and the request for the NAR finds the files missing.
    let nar = format!("/{}", serve.get(&narinfo_of(lost)).narinfo_field("URL"));
    store.lose(lost);
    assert_eq!(status(&nar), 404);
    assert_eq!(status(&narinfo_of(lost)), 404);
    assert_eq!(status(&narinfo_of(other)), 200);
    assert!(serve.stop().contains("cannot examine"));
}
