//! Tests of opening and locking a database.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use floe_format::{StoreDir, StorePath};

use super::*;
use crate::locks::LockWait;
use crate::options::WriteOptions;

/// An empty store, and options whose cancel flag is already set.
fn interrupted() -> (tempfile::TempDir, StoreLayout, WriteOptions) {
    let root = tempfile::tempdir().unwrap();
    let layout = StoreLayout::in_root(root.path(), StoreDir::default());
    fs::create_dir_all(layout.database_dir()).unwrap();
    let cancel = Arc::new(AtomicBool::new(true));
    let options = WriteOptions {
        lock_wait: LockWait::new(cancel, |_| {}),
        use_sqlite_wal: false,
        ..WriteOptions::default()
    };
    (root, layout, options)
}

/// The lock directory stands for another process that creates the same database slowly.
#[test]
fn interrupt_ends_wait_for_database_creation() {
    let (_root, layout, options) = interrupted();
    // SQLite's VFS with lock directories locks by creating this directory.
    fs::write(layout.database_dir().join("db.sqlite"), "").unwrap();
    fs::create_dir(layout.database_dir().join("db.sqlite.lock")).unwrap();
    let began = Instant::now();
    let _scope = options.lock_wait.enter_scope();
    let error =
        Database::open_writable(&layout, &options.database(MissingTables::Create)).unwrap_err();
    assert!(matches!(error, StoreError::Interrupted), "{error}");
    assert!(began.elapsed() < CREATE_TIMEOUT / 2);
}

#[test]
fn reader_ignores_interrupt_of_earlier_writer_on_its_thread() {
    let (_root, layout, options) = interrupted();
    let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
    let writer = Mutex::new(
        Database::open_writable(&layout, &options.database(MissingTables::Create)).unwrap(),
    );
    let locked = LockedDatabase::lock(&writer, &options.lock_wait);
    assert!(!locked.is_valid(&path).unwrap());
    drop(locked);
    drop(writer);
    let (reader, access) =
        Database::open_for_reading(&layout, BusyPolicy::Timeout(Duration::ZERO)).unwrap();
    assert_eq!(access, AccessMode::LockDirectory);
    fs::create_dir(layout.database_dir().join("db.sqlite.lock")).unwrap();
    let error = reader.is_valid(&path).unwrap_err();
    assert!(error.is_busy(), "{error}");
}

/// A writer that SQLite's locks would reveal has crashed: only its files are left.
#[test]
fn reader_recovers_the_journal_of_a_crashed_writer() {
    let (_root, layout, options) = interrupted();
    let file = layout.database_dir().join("db.sqlite");
    let writer =
        Database::open_writable(&layout, &options.database(MissingTables::Create)).unwrap();
    let change = "pragma cache_size = 1; begin exclusive; \
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
         insert into ValidPaths (path, hash, registrationTime) \
         select i, hex(randomblob(50)), 0 from n";
    writer.connection.execute_batch(change).unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let crashed = StoreLayout::in_root(crashed.path(), StoreDir::default());
    fs::create_dir_all(crashed.database_dir()).unwrap();
    for name in ["db.sqlite", "db.sqlite-journal", "schema"] {
        let from = layout.database_dir().join(name);
        fs::copy(from, crashed.database_dir().join(name)).unwrap();
    }
    let journal = side_file(&crashed.database_dir().join("db.sqlite"), "-journal");
    assert!(fs::metadata(&journal).unwrap().len() > 0);
    let policy = BusyPolicy::Timeout(Duration::ZERO);
    // The writer holds the big lock, so nothing may be rolled back.
    let lock = open_lock_file(&crashed.big_lock()).unwrap();
    assert!(try_lock(&lock, &crashed.big_lock(), FlockOperation::LockShared).unwrap());
    assert!(Database::open_for_reading(&crashed, policy).is_err());
    assert!(fs::metadata(&journal).unwrap().len() > 0);
    drop(lock);
    let (reader, _) = Database::open_for_reading(&crashed, policy).unwrap();
    assert_eq!(reader.valid_paths().unwrap(), []);
    drop((reader, writer, file));
}

#[test]
fn synchronous_pragma_follows_fsync_metadata() {
    for (fsync_metadata, expected) in [(true, 1), (false, 0)] {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        let options = WriteOptions {
            fsync_metadata,
            ..WriteOptions::default()
        };
        let database =
            Database::open_writable(&layout, &options.database(MissingTables::Create)).unwrap();
        let connection = &database.connection;
        let found = connection.pragma_query_value(None, "synchronous", |row| row.get(0));
        assert_eq!(found, Ok(expected));
    }
}
