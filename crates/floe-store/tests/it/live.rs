//! A store that is read while other processes write to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floe_format::{DrvKey, DrvOutput, HashPart, StorePath};
use floe_store::{HashPartIndex, LiveStore, StoreError, StoreReader};
use rusqlite::{Connection, OpenFlags};

use crate::support::{Scratch, path, stage};

fn database(scratch: &Scratch) -> PathBuf {
    scratch.layout().database_dir().join("db.sqlite")
}

fn live(scratch: &Scratch) -> LiveStore {
    LiveStore::open(scratch.layout(), Duration::ZERO).unwrap()
}

/// Registers a path with references.
fn register(scratch: &Scratch, path: &StorePath, references: &[&StorePath]) {
    let writer = scratch.writer();
    let staged = stage(&writer, path, references);
    writer.register(vec![staged]).unwrap();
}

/// A connection that locks like a Nix with `use-sqlite-wal = false`.
fn with_lock_directory(file: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    Connection::open_with_flags_and_vfs(file, flags, c"unix-dotfile").unwrap()
}

/// A store without a write-ahead log.
fn truncating() -> Scratch {
    let scratch = Scratch::new();
    drop(scratch.writer());
    let connection = Connection::open(database(&scratch)).unwrap();
    let mode = connection.pragma_update(None, "journal_mode", "truncate");
    mode.unwrap();
    scratch
}

#[test]
fn path_info_is_found_by_path_and_hash_part() {
    let scratch = Scratch::new();
    let paths = ['1', '2', '3'].map(|digit| path(digit, "a"));
    let store_of = |path| live(&scratch).path_info(path).unwrap();
    register(&scratch, &paths[0], &[]);
    register(&scratch, &paths[1], &[&paths[0], &paths[1]]);
    register(&scratch, &paths[2], &[&paths[1], &paths[0]]);
    let store = live(&scratch);
    for (path, references) in paths.iter().zip([0, 2, 2]) {
        let info = store.path_info(path).unwrap().unwrap();
        assert_eq!((&info.path, info.references.len()), (path, references));
        let same = store.path_info_from_hash_part(path.hash_part()).unwrap();
        assert_eq!(same.as_ref(), Some(&info));
        assert_eq!(store_of(path), same);
    }
    for absent in ["0", "2", "4", "z"] {
        let part = HashPart::parse(&(absent.repeat(31) + "0")).unwrap();
        assert_eq!(store.path_info_from_hash_part(part).unwrap(), None);
    }
}

#[test]
fn query_does_not_block_wal_checkpoint() {
    let scratch = Scratch::new();
    let (a, b) = (path('1', "a"), path('2', "b"));
    register(&scratch, &a, &[]);
    let mut store = live(&scratch);
    let mut index = HashPartIndex::load(&store).unwrap();
    let writer = Connection::open(database(&scratch)).unwrap();
    let log_is_free = || {
        register(&scratch, &b, &[&a]);
        let (busy, left): (i64, i64) = writer
            .query_row("pragma wal_checkpoint(truncate)", (), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!((busy, left), (0, 0));
    };
    store.generation().unwrap();
    log_is_free();
    store.path_info(&b).unwrap().unwrap();
    log_is_free();
    store
        .path_info_from_hash_part(a.hash_part())
        .unwrap()
        .unwrap();
    let output = DrvOutput::new(DrvKey::Path(path('4', "a.drv")), "out").unwrap();
    store.realisation(&output).unwrap();
    log_is_free();
    assert!(index.apply(index.cursor().delta(&store).unwrap()));
    log_is_free();
}

#[test]
fn locked_database_is_busy_at_once_with_zero_timeout() {
    let scratch = truncating();
    let a = path('1', "a");
    register(&scratch, &a, &[]);
    let mut store = live(&scratch);
    let writer = with_lock_directory(&database(&scratch));
    writer.execute_batch("begin exclusive").unwrap();
    let busy = [
        store.path_info(&a).unwrap_err(),
        HashPartIndex::load(&store).unwrap_err(),
        LiveStore::open(scratch.layout(), Duration::ZERO).unwrap_err(),
    ];
    assert!(busy.iter().all(StoreError::is_busy), "{busy:?}");
    writer.execute_batch("commit").unwrap();
    store.generation().unwrap();
    assert!(store.path_info(&a).unwrap().is_some());

    let scratch = Scratch::new();
    drop(scratch.writer());
    let writer = Connection::open(database(&scratch)).unwrap();
    let lock = "pragma locking_mode = exclusive; begin exclusive";
    writer.execute_batch(lock).unwrap();
    let error = LiveStore::open(scratch.layout(), Duration::ZERO).unwrap_err();
    assert!(error.is_busy(), "{error}");
    drop(writer);
    live(&scratch);
}

#[test]
fn half_written_database_is_busy() {
    let scratch = truncating();
    let a = path('1', "a");
    register(&scratch, &a, &[]);
    // Nix holds the big lock while it has the database open.
    let big_lock = fs::File::open(scratch.layout().database_dir().join("big-lock")).unwrap();
    big_lock.lock_shared().unwrap();
    let writer = with_lock_directory(&database(&scratch));
    fill_beyond_the_cache(&writer);
    let journal = database(&scratch).with_file_name("db.sqlite-journal");
    assert!(fs::metadata(&journal).unwrap().len() > 0);
    let error = LiveStore::open(scratch.layout(), Duration::ZERO).unwrap_err();
    assert!(error.is_busy(), "{error}");
    writer.execute_batch("rollback").unwrap();
    let store = live(&scratch);
    assert_eq!(HashPartIndex::load(&store).unwrap().len(), 1);
}

/// Begins a transaction that writes pages before its commit.
fn fill_beyond_the_cache(writer: &Connection) {
    writer
        .execute_batch(
            "pragma cache_size = 1; begin exclusive; \
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) \
             insert into ValidPaths (path, hash, registrationTime) \
             select printf('/nix/store/%032d-n', i), 'sha256:00', 1 from n",
        )
        .unwrap();
}

#[test]
fn database_with_new_journal_mode_is_reopened() {
    let scratch = truncating();
    let (a, b) = (path('1', "a"), path('2', "b"));
    register(&scratch, &a, &[]);
    let mut store = live(&scratch);
    assert!(store.path_info(&a).unwrap().is_some());
    let connection = with_lock_directory(&database(&scratch));
    drop(connection);
    let connection = Connection::open(database(&scratch)).unwrap();
    connection
        .pragma_update(None, "journal_mode", "wal")
        .unwrap();
    drop(connection);
    register(&scratch, &b, &[&a]);
    store.generation().unwrap();
    assert!(store.path_info(&b).unwrap().is_some());
}

#[test]
fn corrupt_database_is_an_error_until_repaired() {
    let scratch = Scratch::new();
    let a = path('1', "a");
    register(&scratch, &a, &[]);
    let mut store = live(&scratch);
    let generation = store.generation().unwrap();
    let (directory, whole) = (
        scratch.layout().database_dir(),
        scratch.path().join("whole"),
    );
    fs::rename(&directory, &whole).unwrap();
    fs::create_dir(&directory).unwrap();
    for contents in ["", "no database", &"no database ".repeat(10_000)] {
        fs::write(database(&scratch), contents).unwrap();
        assert!(LiveStore::open(scratch.layout(), Duration::ZERO).is_err());
    }
    while store.generation().is_ok() {}
    assert!(store.path_info(&a).is_err());
    assert!(HashPartIndex::load(&store).is_err());
    assert_eq!(store.reopenings(), 0);
    fs::remove_dir_all(&directory).unwrap();
    fs::rename(&whole, &directory).unwrap();
    assert!(store.generation().unwrap() > generation);
    assert_eq!(store.reopenings(), 1);
    assert!(store.path_info(&a).unwrap().is_some());
}

#[test]
fn invalid_rows_fail_only_their_own_queries() {
    let scratch = Scratch::new();
    let (a, b) = (path('1', "a"), path('2', "b"));
    register(&scratch, &a, &[]);
    register(&scratch, &b, &[]);
    let store = live(&scratch);
    let writer = Connection::open(database(&scratch)).unwrap();
    for change in [
        "hash = 'x'",
        "hash = x'ff'",
        "sigs = 'x'",
        "ca = 'x'",
        "deriver = 'x'",
    ] {
        let sql = format!("update ValidPaths set {change} where path like '%-a'");
        writer.execute(&sql, ()).unwrap();
        assert!(store.path_info(&a).is_err(), "{change}");
        assert!(
            store.path_info_from_hash_part(a.hash_part()).is_err(),
            "{change}"
        );
        assert!(store.path_info(&b).unwrap().is_some());
    }
    writer
        .execute(
            "update ValidPaths set path = '/nix/store/xyz' where path like '%-a'",
            (),
        )
        .unwrap();
    let index = HashPartIndex::load(&store).unwrap();
    assert_eq!(index.len(), 1);
    assert!(index.may_contain(b.hash_part()));
    writer.execute_batch("drop table Refs").unwrap();
    assert!(store.path_info(&b).is_err());
}

#[test]
fn index_reloads_after_database_rollback() {
    let scratch = Scratch::new();
    let (a, b, c) = (path('1', "a"), path('2', "b"), path('3', "c"));
    register(&scratch, &a, &[]);
    register(&scratch, &b, &[]);
    let store = live(&scratch);
    let mut index = HashPartIndex::load(&store).unwrap();
    let has = |index: &HashPartIndex| [&a, &b, &c].map(|path| index.may_contain(path.hash_part()));
    assert_eq!(has(&index), [true, true, false]);
    // Without the last row, the index cannot tell whether row numbers were reused, so it reloads.
    let writer = Connection::open(database(&scratch)).unwrap();
    writer
        .execute_batch("delete from ValidPaths where path like '%-b'")
        .unwrap();
    register(&scratch, &c, &[]);
    assert!(index.apply(index.cursor().delta(&store).unwrap()));
    assert_eq!(has(&index), [true, false, true]);
    writer
        .execute_batch("delete from ValidPaths where id > 1; update sqlite_sequence set seq = 1")
        .unwrap();
    assert!(index.apply(index.cursor().delta(&store).unwrap()));
    assert_eq!(has(&index), [true, false, false]);
}

#[test]
fn live_store_is_send() {
    let scratch = Scratch::new();
    let a = path('1', "a");
    register(&scratch, &a, &[]);
    let mut store = live(&scratch);
    let asking = std::thread::spawn(move || {
        store.generation().unwrap();
        store.path_info(&a).unwrap()
    });
    assert!(asking.join().unwrap().is_some());
}

#[test]
fn store_reader_equals_live_store() {
    let scratch = Scratch::new();
    let (a, b) = (path('1', "a"), path('2', "b"));
    register(&scratch, &a, &[]);
    register(&scratch, &b, &[&a, &b]);
    let (store, reader) = (live(&scratch), StoreReader::open(scratch.layout()).unwrap());
    for path in [&a, &b] {
        assert_eq!(
            store.path_info(path).unwrap(),
            reader.path_info(path).unwrap()
        );
    }
}

#[test]
fn delta_from_before_reload_is_rejected() {
    let scratch = Scratch::new();
    let paths = ['1', '2', '3'].map(|digit| path(digit, "a"));
    register(&scratch, &paths[0], &[]);
    let early = live(&scratch);
    let old = HashPartIndex::load(&early).unwrap();
    register(&scratch, &paths[1], &[]);
    let mut index = HashPartIndex::load(&early).unwrap();
    register(&scratch, &paths[2], &[]);
    let late = index.cursor().delta(&early).unwrap();
    // Meanwhile another user of the index has applied the old state.
    index = old;
    assert!(index.apply(late));
    assert!(!index.may_contain(paths[2].hash_part()));
    // The index stays complete when row numbers are reused.
    assert!(index.apply(index.cursor().delta(&early).unwrap()));
    assert!(paths.iter().all(|path| index.may_contain(path.hash_part())));
    assert!(index.matches_database_of(&early).unwrap());
}

#[test]
fn database_restored_in_place_is_reloaded() {
    let scratch = Scratch::new();
    let paths = ['1', '2', '3'].map(|digit| path(digit, "a"));
    register(&scratch, &paths[0], &[]);
    let copy = scratch.layout().database_dir().join("copy.sqlite");
    let connection = Connection::open(database(&scratch)).unwrap();
    let text = copy.display().to_string();
    connection.execute("vacuum into ?1", [&text]).unwrap();
    register(&scratch, &paths[1], &[]);
    let store = live(&scratch);
    let mut index = HashPartIndex::load(&store).unwrap();
    assert!(index.may_contain(paths[1].hash_part()));
    // SQLite's shell does `.restore` in this way: it writes the older contents into the same file.
    // The next path gets a row number that the index already has.
    let restore = format!(
        "attach '{text}' as old; begin; delete from ValidPaths; delete from sqlite_sequence; \
         insert into ValidPaths select * from old.ValidPaths; \
         insert into sqlite_sequence select * from old.sqlite_sequence; commit; detach old"
    );
    connection.execute_batch(&restore).unwrap();
    register(&scratch, &paths[2], &[]);
    assert!(index.apply(index.cursor().delta(&store).unwrap()));
    let has = paths.map(|path| index.may_contain(path.hash_part()));
    assert_eq!(has, [true, false, true]);
}

#[test]
fn older_concurrent_reload_does_not_win() {
    let scratch = Scratch::new();
    let paths = ['1', '2', '3'].map(|digit| path(digit, "a"));
    register(&scratch, &paths[0], &[]);
    register(&scratch, &paths[1], &[]);
    let store = live(&scratch);
    let mut index = HashPartIndex::load(&store).unwrap();
    let mark = index.cursor();
    let writer = Connection::open(database(&scratch)).unwrap();
    writer
        .execute_batch("delete from ValidPaths where id = 2")
        .unwrap();
    let older = mark.delta(&store).unwrap();
    register(&scratch, &paths[2], &[]);
    let newer = mark.delta(&store).unwrap();
    assert!(index.apply(newer));
    assert!(!index.apply(older));
    assert!(index.may_contain(paths[2].hash_part()));
}
