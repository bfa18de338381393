//! Opening and creating stores.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::{Arc, mpsc};
use std::thread;

use floe_format::StoreDir;
use floe_store::tree::remove_tree;
use floe_store::{LockWait, StoreError, StoreLayout, StoreReader, StoreWriter, WriteOptions};

use crate::support::{Scratch, path, stage};

#[test]
fn new_store_has_directories_and_schema_of_nix() {
    let scratch = Scratch::new();
    let _writer = scratch.writer();
    let state = scratch.layout().state_dir;
    for name in [
        "db/db.sqlite",
        "db/big-lock",
        "db/reserved",
        "gc.lock",
        "temproots",
    ] {
        assert!(state.join(name).exists(), "{name}");
    }
    assert_eq!(fs::read_to_string(state.join("db/schema")).unwrap(), "10");
    for name in ["profiles/per-user", "gcroots/per-user"] {
        let mode = fs::metadata(state.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "{name}");
    }
    assert!(scratch.layout().links_dir().exists());
}

#[test]
fn reopened_store_keeps_its_paths() {
    let scratch = Scratch::new();
    let a = path('1', "a");
    let writer = scratch.writer();
    writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    drop(writer);
    assert_eq!(
        scratch
            .writer()
            .query_missing(std::slice::from_ref(&a))
            .unwrap(),
        []
    );
    assert_eq!(
        StoreReader::open(scratch.layout())
            .unwrap()
            .valid_paths()
            .unwrap(),
        [a]
    );
}

#[test]
fn unknown_schema_is_an_error_with_its_number() {
    let scratch = Scratch::new();
    drop(scratch.writer());
    fs::write(scratch.layout().database_dir().join("schema"), "11").unwrap();
    for error in [
        StoreWriter::open(scratch.layout()).unwrap_err(),
        StoreReader::open(scratch.layout()).unwrap_err(),
    ] {
        assert!(
            matches!(&error, StoreError::Schema { found, .. } if found == "11"),
            "{error}"
        );
    }
}

#[test]
fn symlinked_store_is_refused_unless_allowed() {
    let scratch = Scratch::new();
    let (real, link) = (scratch.path().join("real"), scratch.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let error = StoreWriter::open(StoreLayout::in_root(&link, StoreDir::default())).unwrap_err();
    assert!(matches!(error, StoreError::SymlinkedStore(path) if path == link));
    let options = WriteOptions {
        allow_symlinked_store: true,
        ..WriteOptions::default()
    };
    StoreWriter::open_with(StoreLayout::in_root(&link, StoreDir::default()), &options).unwrap();
    assert!(real.join("nix/var/nix/db/db.sqlite").exists());
}

#[test]
fn reader_does_not_create_a_store() {
    let scratch = Scratch::new();
    let error = StoreReader::open(scratch.layout()).unwrap_err();
    assert!(matches!(error, StoreError::NoStore { .. }), "{error}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn store_without_wal_keeps_mode_and_lock_directory() {
    let scratch = Scratch::new();
    drop(scratch.writer());
    let file = scratch.layout().database_dir().join("db.sqlite");
    let mode = |connection: &rusqlite::Connection| -> String {
        connection
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .unwrap()
    };
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection
        .pragma_update(None, "journal_mode", "truncate")
        .unwrap();
    drop(connection);
    let writer = scratch.writer();
    let a = path('1', "a");
    writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    drop(writer);
    assert_ne!(mode(&rusqlite::Connection::open(&file).unwrap()), "wal");
    // While another connection holds the lock directory, a read waits.
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let nix = rusqlite::Connection::open_with_flags_and_vfs(&file, flags, c"unix-dotfile").unwrap();
    nix.execute_batch("begin exclusive").unwrap();
    assert!(file.with_file_name("db.sqlite.lock").exists());
    nix.execute_batch("commit").unwrap();
    assert_eq!(
        StoreReader::open(scratch.layout())
            .unwrap()
            .valid_paths()
            .unwrap(),
        [a]
    );
}

#[test]
fn writer_removes_lock_directory_of_killed_process() {
    let scratch = Scratch::new();
    let options = WriteOptions {
        use_sqlite_wal: false,
        ..WriteOptions::default()
    };
    let open = || StoreWriter::open_with(scratch.layout(), &options).unwrap();
    drop(open());
    let directory = scratch.layout().database_dir().join("db.sqlite.lock");
    fs::create_dir(&directory).unwrap();
    let writer = open();
    assert!(!directory.exists());
    let a = path('1', "a");
    writer.register(vec![stage(&writer, &a, &[])]).unwrap();
}

#[test]
fn unwritable_location_is_an_error() {
    let error = StoreWriter::open(StoreLayout::in_root(
        std::path::Path::new("/proc/floe"),
        StoreDir::default(),
    ))
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("create the directory /proc/floe"),
        "{error}"
    );
}

#[test]
fn empty_schema_file_is_rewritten() {
    let scratch = Scratch::new();
    drop(scratch.writer());
    let schema = scratch.layout().database_dir().join("schema");
    fs::write(&schema, "").unwrap();
    drop(scratch.writer());
    assert_eq!(fs::read_to_string(schema).unwrap(), "10");
}

#[test]
fn unwritable_store_with_daemon_socket_is_refused() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new();
    let state = scratch.layout().state_dir;
    fs::create_dir_all(state.join("daemon-socket")).unwrap();
    fs::write(state.join("daemon-socket/socket"), "").unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o555)).unwrap();
    let error = StoreWriter::open(scratch.layout()).unwrap_err();
    assert!(matches!(error, StoreError::DaemonOwned(_)), "{error}");
}

#[test]
fn concurrent_creations_of_one_store_succeed() {
    for _ in 0..30 {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        let start = std::sync::Barrier::new(6);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    start.wait();
                    StoreWriter::open(layout.clone()).unwrap()
                });
            }
        });
        assert!(
            StoreReader::open(layout)
                .unwrap()
                .valid_paths()
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn new_store_is_removed_unless_it_is_used() {
    let scratch = Scratch::new();
    let root = scratch.path().join("deep/root");
    let layout = StoreLayout::in_root(&root, StoreDir::default());
    let open = || StoreWriter::open(layout.clone()).unwrap();
    let first = open();
    // Another process, or another copy of this one, uses the store.
    let second = open();
    first.remove_if_unused();
    second.remove_if_unused();
    drop(second);
    assert!(layout.database_dir().join("schema").exists());
    // A file that floe does not know.
    let foreign = layout.state_dir.join("db/foreign");
    fs::write(&foreign, "").unwrap();
    first.remove_if_unused();
    assert!(layout.database_dir().join("schema").exists());
    fs::remove_file(foreign).unwrap();
    first.remove_if_unused();
    drop(first);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn store_with_path_or_kept_tree_is_not_removed() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let a = path('1', "a");
    let staged = stage(&writer, &a, &[]);
    writer.keep_for_resume([staged.tree]);
    writer.remove_if_unused();
    let tree = writer.take_recovered(&a).unwrap();
    assert!(tree.location().exists());
    drop(tree);
    writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    writer.remove_if_unused();
    drop(writer);
    // A writer that did not create the store.
    let writer = scratch.writer();
    writer.remove_if_unused();
    assert_eq!(writer.query_missing(&[a]).unwrap(), []);
}

/// The process that removes the store holds the lock for which the writer waits.
#[test]
fn store_removed_while_writer_waits_is_created_again() {
    let scratch = Scratch::new();
    drop(scratch.writer());
    let lock = File::open(scratch.layout().database_dir().join("big-lock")).unwrap();
    lock.lock().unwrap();
    let (sender, waits) = mpsc::channel();
    let notify = move |_: &str| sender.send(()).unwrap();
    let options = WriteOptions {
        lock_wait: LockWait::new(Arc::default(), notify),
        ..WriteOptions::default()
    };
    let writer = thread::scope(|scope| {
        let opening = scope.spawn(|| StoreWriter::open_with(scratch.layout(), &options).unwrap());
        waits.recv().unwrap();
        remove_tree(&scratch.path().join("nix")).unwrap();
        lock.unlock().unwrap();
        opening.join().unwrap()
    });
    let a = path('1', "a");
    writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    drop(writer);
    assert_eq!(scratch.writer().query_missing(&[a]).unwrap(), []);
}
