//! `LiveStore`, which serves a store while Nix writes to it.

pub(crate) mod realisations;
mod unprivileged_readers;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floe_format::{StoreDir, StorePath};
use floe_store::{HashPartIndex, LiveStore, StoreError, StoreLayout, StoreReader};
use floe_testkit::{Nix, Scratch, nixes, ran_in_pid_namespace, run, scratch};

/// A store that Nix writes, with additional settings.
struct NixStore<'a> {
    nix: &'a Nix,
    settings: &'a str,
    scratch: Scratch,
}

impl<'a> NixStore<'a> {
    fn new(nix: &'a Nix, settings: &'a str) -> NixStore<'a> {
        let scratch = scratch();
        NixStore {
            nix,
            settings,
            scratch,
        }
    }

    fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }

    fn layout(&self) -> StoreLayout {
        StoreLayout::in_root(&self.root(), StoreDir::default())
    }

    fn database(&self) -> PathBuf {
        self.layout().database_dir().join("db.sqlite")
    }

    #[track_caller]
    fn store(&self, args: &[&str]) -> String {
        let root = self.root();
        let mut command = self.nix.command("nix-store", ["--store"]);
        command.arg(root).args(args);
        run(command.env("NIX_CONFIG", self.settings))
            .expect(0)
            .stdout
    }

    /// Adds a file with this name and contents.
    #[track_caller]
    fn add(&self, name: &str) -> StorePath {
        let file = self.scratch.join(name);
        fs::write(&file, name).unwrap();
        let printed = self.store(&["--add", &file.display().to_string()]);
        StoreDir::default().parse(printed.trim()).unwrap()
    }

    fn delete(&self, path: &StorePath) {
        self.store(&["--delete", &StoreDir::default().full_path(path)]);
    }
}

/// Polls until the generation changes. Returns how long that took.
fn wait_until_changed(store: &mut LiveStore, since: u64) -> Duration {
    let start = Instant::now();
    while store.generation().unwrap() == since {
        assert!(
            start.elapsed() < NOTICE_TIMEOUT,
            "the change was not noticed"
        );
        std::thread::yield_now();
    }
    start.elapsed()
}

fn copy_database(from: &Path, to: &Path) {
    // `vacuum into` includes the write-ahead log, which a file copy would miss.
    let connection = rusqlite::Connection::open(from).unwrap();
    let text = to.display().to_string();
    connection.execute("vacuum into ?1", [text]).unwrap();
}

#[test]
fn changes_by_nix_are_visible_at_the_next_query() {
    if ran_in_pid_namespace() {
        return;
    }
    for nix in &nixes() {
        for settings in ["", "use-sqlite-wal = false"] {
            let nix_store = NixStore::new(nix, settings);
            let first = nix_store.add("first");
            let mut store = LiveStore::open(nix_store.layout(), TIMEOUT).unwrap();
            let mut index = HashPartIndex::load(&store).unwrap();
            let mut last = store.generation().unwrap();
            let mut assert_generation_increases = |store: &mut LiveStore| {
                let generation = store.generation().unwrap();
                let has_increased = generation > last;
                last = generation;
                assert!(has_increased, "{}, {settings:?}", nix.version);
            };
            let info = store.path_info(&first).unwrap().unwrap();
            let reader = StoreReader::open(nix_store.layout()).unwrap();
            assert_eq!(reader.path_info(&first).unwrap(), Some(info));

            let second = nix_store.add("second");
            assert_generation_increases(&mut store);
            let found = store.path_info_from_hash_part(second.hash_part()).unwrap();
            assert_eq!(found.unwrap().path, second);
            assert!(!index.may_contain(second.hash_part()));
            assert!(index.apply(index.cursor().delta(&store).unwrap()));
            assert!(index.may_contain(second.hash_part()));
            assert!(index.may_contain(first.hash_part()));

            nix_store.delete(&second);
            assert_generation_increases(&mut store);
            assert_eq!(store.path_info(&second).unwrap(), None);
            assert_eq!(
                store.path_info_from_hash_part(second.hash_part()).unwrap(),
                None
            );

            nix_store.store(&["--gc"]);
            assert_generation_increases(&mut store);
            assert_eq!(store.path_info(&first).unwrap(), None);
            assert!(index.apply(index.cursor().delta(&store).unwrap()));
            assert_eq!(index.len(), 0, "the index still contains deleted rows");
        }
    }
}

#[test]
fn generation_of_idle_store_does_not_change() {
    for nix in &nixes() {
        let nix_store = NixStore::new(nix, "");
        nix_store.add("first");
        let mut store = LiveStore::open(nix_store.layout(), TIMEOUT).unwrap();
        let generation = store.generation().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            assert_eq!(store.generation().unwrap(), generation);
        }
    }
}

#[test]
fn replaced_database_is_reopened() {
    for nix in &nixes() {
        let (nix_store, other) = (NixStore::new(nix, ""), NixStore::new(nix, ""));
        let (old, new) = (nix_store.add("old"), other.add("new"));
        let mut store = LiveStore::open(nix_store.layout(), TIMEOUT).unwrap();
        let mut index = HashPartIndex::load(&store).unwrap();
        let generation = store.generation().unwrap();

        let copy = nix_store.scratch.join("copy");
        copy_database(&other.database(), &copy);
        fs::rename(&copy, nix_store.database()).unwrap();
        for side in ["db.sqlite-wal", "db.sqlite-shm"] {
            let _: std::io::Result<()> = fs::remove_file(nix_store.database().with_file_name(side));
        }
        wait_until_changed(&mut store, generation);
        assert!(store.path_info(&old).unwrap().is_none());
        assert!(store.path_info(&new).unwrap().is_some());
        assert!(index.apply(index.cursor().delta(&store).unwrap()));
        let has = |path: &StorePath| index.may_contain(path.hash_part());
        assert_eq!((has(&old), has(&new)), (false, true));
    }
}

#[test]
fn removed_database_is_an_error_until_it_is_back() {
    for nix in &nixes() {
        let nix_store = NixStore::new(nix, "");
        let path = nix_store.add("path");
        let mut store = LiveStore::open(nix_store.layout(), TIMEOUT).unwrap();
        let generation = store.generation().unwrap();
        let (database, away) = (
            nix_store.layout().database_dir(),
            nix_store.scratch.join("away"),
        );
        fs::rename(&database, &away).unwrap();
        let start = Instant::now();
        let error = loop {
            match store.generation() {
                Ok(_) => assert!(
                    start.elapsed() < NOTICE_TIMEOUT,
                    "the removal was not noticed"
                ),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::NoStore { .. }), "{error}");
        let again = store.path_info(&path).unwrap_err();
        assert!(matches!(again, StoreError::NoStore { .. }), "{again}");
        fs::rename(&away, &database).unwrap();
        assert!(store.generation().unwrap() > generation);
        assert!(store.path_info(&path).unwrap().is_some());
        // The connection notices further changes.
        let generation = store.generation().unwrap();
        let more = nix_store.add("more");
        assert!(store.generation().unwrap() > generation);
        assert!(store.path_info(&more).unwrap().is_some());
    }
}

/// Longer than any single commit of these tests.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum delay until a change is noticed that is visible only in the file system. Allows for a
/// stalled machine.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(60);
