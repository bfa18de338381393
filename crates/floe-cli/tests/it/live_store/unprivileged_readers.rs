//! Readers without write permission for the database directory.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_store::LiveStore;
use floe_testkit::{become_nobody, nixes, skip};

use super::{NixStore, TIMEOUT, wait_until_changed};

/// Checkpoints the database and removes its side files.
fn checkpoint(nix_store: &NixStore<'_>) {
    let connection = rusqlite::Connection::open(nix_store.database()).unwrap();
    let pragma = "pragma wal_checkpoint(truncate)";
    connection.query_row(pragma, (), |_| Ok(())).unwrap();
    drop(connection);
    for side in ["db.sqlite-wal", "db.sqlite-shm", "db.sqlite-journal"] {
        let file = nix_store.database().with_file_name(side);
        assert!(!file.exists() || fs::remove_file(&file).is_ok());
    }
}

#[test]
fn unprivileged_reader_sees_every_change_by_nix() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        for settings in ["", "use-sqlite-wal = false"] {
            let nix_store = NixStore::new(nix, settings);
            let first = nix_store.add("first");
            let open_to_all = fs::Permissions::from_mode(0o755);
            fs::set_permissions(nix_store.scratch.path(), open_to_all).unwrap();
            checkpoint(&nix_store);
            let (changes, changed) = mpsc::channel::<(StorePath, bool)>();
            let (done, is_done) = mpsc::channel();
            thread::scope(|scope| {
                let layout = nix_store.layout();
                let reader = scope.spawn(move || {
                    become_nobody();
                    let mut store = LiveStore::open(layout.clone(), TIMEOUT).unwrap();
                    assert!(store.path_info(&first).unwrap().is_some());
                    let probe = layout.database_dir().join("probe");
                    assert!(
                        fs::write(probe, "").is_err(),
                        "the user has write permission"
                    );
                    let mut generation = store.generation().unwrap();
                    done.send(()).unwrap();
                    for (path, is_valid) in changed {
                        wait_until_changed(&mut store, generation);
                        // The change may become visible in the middle of a Nix command, before its
                        // commit.
                        while store.path_info(&path).unwrap().is_some() != is_valid {
                            generation = store.generation().unwrap();
                            wait_until_changed(&mut store, generation);
                        }
                        generation = store.generation().unwrap();
                        done.send(()).unwrap();
                    }
                });
                // If the reader panics, its end of the channel is closed.
                let wait = || is_done.recv().is_ok();
                assert!(wait(), "{}, {settings:?}", nix.version);
                for name in ["second", "third", "fourth"] {
                    let path = nix_store.add(name);
                    changes.send((path.clone(), true)).unwrap();
                    assert!(wait(), "{}, {settings:?}: {name} added", nix.version);
                    nix_store.delete(&path);
                    changes.send((path, false)).unwrap();
                    assert!(wait(), "{}, {settings:?}: {name} deleted", nix.version);
                }
                drop(changes);
                reader.join().unwrap();
            });
        }
    }
}

/// Runs a closure on a thread of the user `nobody`, in a store that every user may read.
fn as_nobody<T: Send>(nix_store: &NixStore<'_>, work: impl FnOnce() -> T + Send) -> T {
    fs::set_permissions(nix_store.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    thread::scope(|scope| {
        let as_nobody = scope.spawn(|| {
            become_nobody();
            work()
        });
        as_nobody.join().unwrap()
    })
}

#[test]
fn unprivileged_reader_sees_no_spurious_changes() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        let nix_store = NixStore::new(nix, "");
        let first = nix_store.add("first");
        let database = nix_store.database();
        // Keep the log files, as newer versions of Nix do.
        let connection = rusqlite::Connection::open(&database).unwrap();
        let keep = rusqlite::FileControl::PersistWal(&mut 1);
        connection
            .file_control(rusqlite::DEFAULT_NAME, keep)
            .unwrap();
        let pragma = "pragma wal_checkpoint(truncate)";
        connection.query_row(pragma, (), |_| Ok(())).unwrap();
        drop(connection);
        for side in ["db.sqlite-wal", "db.sqlite-shm"] {
            assert!(database.with_file_name(side).exists(), "{side}");
        }
        let layout = nix_store.layout();
        let (mut store, generation) = as_nobody(&nix_store, || {
            let mut store = LiveStore::open(layout, TIMEOUT).unwrap();
            // A reader looks for changes only after a while.
            thread::sleep(Duration::from_millis(50));
            store.generation().unwrap();
            let generation = store.generation().unwrap();
            for _ in 0..100 {
                assert!(store.path_info(&first).unwrap().is_some());
                assert_eq!(store.generation().unwrap(), generation, "{}", nix.version);
            }
            (store, generation)
        });
        let second = nix_store.add("second");
        as_nobody(&nix_store, || {
            wait_until_changed(&mut store, generation);
            assert!(store.path_info(&second).unwrap().is_some());
        });
    }
}

#[test]
fn unprivileged_reader_waits_only_while_lock_exists() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        let nix_store = NixStore::new(nix, "use-sqlite-wal = false");
        let first = nix_store.add("first");
        let lock = nix_store.database().with_file_name("db.sqlite.lock");
        fs::create_dir(&lock).unwrap();
        let layout = nix_store.layout();
        as_nobody(&nix_store, || {
            let busy = LiveStore::open(layout.clone(), Duration::ZERO).unwrap_err();
            assert!(busy.is_busy(), "{busy}");
        });
        // Take the time before the other thread starts, so the measured wait cannot be too short.
        let start = Instant::now();
        let opened = thread::scope(|scope| {
            scope.spawn(|| {
                // The reader waits for at least this time.
                thread::sleep(Duration::from_millis(300));
                fs::remove_dir(&lock).unwrap();
            });
            let found = as_nobody(&nix_store, || {
                let store = LiveStore::open(layout, LONG_TIMEOUT).unwrap();
                store.path_info(&first).unwrap().is_some()
            });
            assert!(found, "{}", nix.version);
            start.elapsed()
        });
        assert!(opened >= Duration::from_millis(250), "{opened:?}");
        assert!(opened < LONG_TIMEOUT / 2, "{opened:?}");
    }
}

/// Much longer than it takes to notice that a lock is gone.
const LONG_TIMEOUT: Duration = Duration::from_secs(120);
