//! `LiveStore`, which serves a store while Nix writes to it.

mod realisations;
mod users;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floe_format::{StoreDir, StorePath};
use floe_store::{HashPartIndex, LiveStore, StoreError, StoreLayout, StoreReader};

use crate::support::{Nix, Scratch, nixes, run, scratch};

/// A store that Nix writes, with additional settings.
struct Written<'a> {
    nix: &'a Nix,
    settings: &'a str,
    scratch: Scratch,
}

impl<'a> Written<'a> {
    fn new(nix: &'a Nix, settings: &'a str) -> Written<'a> {
        let scratch = scratch();
        Written {
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
fn until_changed(store: &mut LiveStore, since: u64) -> Duration {
    let start = Instant::now();
    while store.generation().unwrap() == since {
        assert!(start.elapsed() < NOTICED, "the change was not noticed");
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
fn what_nix_adds_and_deletes_is_seen_at_the_next_question() {
    for nix in &nixes() {
        for settings in ["", "use-sqlite-wal = false"] {
            let written = Written::new(nix, settings);
            let first = written.add("first");
            let mut store = LiveStore::open(written.layout(), PATIENCE).unwrap();
            let mut index = HashPartIndex::load(&store).unwrap();
            let mut last = store.generation().unwrap();
            let mut goes_up = |store: &mut LiveStore| {
                let generation = store.generation().unwrap();
                let went_up = generation > last;
                last = generation;
                assert!(went_up, "{}, {settings:?}", nix.version);
            };
            let info = store.path_info(&first).unwrap().unwrap();
            let reader = StoreReader::open(written.layout()).unwrap();
            assert_eq!(reader.path_info(&first).unwrap(), Some(info));

            let second = written.add("second");
            goes_up(&mut store);
            let found = store.path_info_from_hash_part(second.hash_part()).unwrap();
            assert_eq!(found.unwrap().path, second);
            assert!(!index.may_contain(second.hash_part()));
            index.refresh(&store).unwrap();
            assert!(index.may_contain(second.hash_part()));
            assert!(index.may_contain(first.hash_part()));

            written.delete(&second);
            goes_up(&mut store);
            assert_eq!(store.path_info(&second).unwrap(), None);
            assert_eq!(
                store.path_info_from_hash_part(second.hash_part()).unwrap(),
                None
            );

            written.store(&["--gc"]);
            goes_up(&mut store);
            assert_eq!(store.path_info(&first).unwrap(), None);
            index.refresh(&store).unwrap();
            assert_eq!(index.len(), 0, "the index still contains deleted rows");
        }
    }
}

#[test]
fn a_store_at_rest_keeps_its_generation() {
    for nix in &nixes() {
        let written = Written::new(nix, "");
        written.add("first");
        let mut store = LiveStore::open(written.layout(), PATIENCE).unwrap();
        let generation = store.generation().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            assert_eq!(store.generation().unwrap(), generation);
        }
    }
}

#[test]
fn a_database_that_was_replaced_is_opened_again() {
    for nix in &nixes() {
        let (written, other) = (Written::new(nix, ""), Written::new(nix, ""));
        let (old, new) = (written.add("old"), other.add("new"));
        let mut store = LiveStore::open(written.layout(), PATIENCE).unwrap();
        let mut index = HashPartIndex::load(&store).unwrap();
        let generation = store.generation().unwrap();

        let copy = written.scratch.join("copy");
        copy_database(&other.database(), &copy);
        fs::rename(&copy, written.database()).unwrap();
        for side in ["db.sqlite-wal", "db.sqlite-shm"] {
            let _: std::io::Result<()> = fs::remove_file(written.database().with_file_name(side));
        }
        until_changed(&mut store, generation);
        assert!(store.path_info(&old).unwrap().is_none());
        assert!(store.path_info(&new).unwrap().is_some());
        index.refresh(&store).unwrap();
        let has = |path: &StorePath| index.may_contain(path.hash_part());
        assert_eq!((has(&old), has(&new)), (false, true));
    }
}

#[test]
fn a_database_that_was_removed_is_an_error_until_it_is_back() {
    for nix in &nixes() {
        let written = Written::new(nix, "");
        let path = written.add("path");
        let mut store = LiveStore::open(written.layout(), PATIENCE).unwrap();
        let generation = store.generation().unwrap();
        let (database, away) = (
            written.layout().database_dir(),
            written.scratch.join("away"),
        );
        fs::rename(&database, &away).unwrap();
        let start = Instant::now();
        let error = loop {
            match store.generation() {
                Ok(_) => assert!(start.elapsed() < NOTICED, "the removal was not noticed"),
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
        let more = written.add("more");
        assert!(store.generation().unwrap() > generation);
        assert!(store.path_info(&more).unwrap().is_some());
    }
}

/// Longer than any single commit of these tests.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum delay until a change is noticed that is visible only in the file system. Allows for a
/// stalled machine.
const NOTICED: Duration = Duration::from_secs(60);
