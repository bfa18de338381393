//! Readers without write permission for the database directory.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_store::LiveStore;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{PATIENCE, Written, until_changed};
use crate::support::{nixes, skip};

/// Switches this thread to the user and group `nobody`.
fn become_nobody() {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

/// Checkpoints the database and removes its side files.
fn settle(written: &Written<'_>) {
    let connection = rusqlite::Connection::open(written.database()).unwrap();
    let checkpoint = "pragma wal_checkpoint(truncate)";
    connection.query_row(checkpoint, (), |_| Ok(())).unwrap();
    drop(connection);
    for side in ["db.sqlite-wal", "db.sqlite-shm", "db.sqlite-journal"] {
        let file = written.database().with_file_name(side);
        assert!(!file.exists() || fs::remove_file(&file).is_ok());
    }
}

#[test]
fn a_user_without_rights_sees_within_a_second_what_nix_does() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        for settings in ["", "use-sqlite-wal = false"] {
            let written = Written::new(nix, settings);
            let first = written.add("first");
            let open_to_all = fs::Permissions::from_mode(0o755);
            fs::set_permissions(written.scratch.path(), open_to_all).unwrap();
            settle(&written);
            let (tell, told) = mpsc::channel::<(StorePath, bool)>();
            let (done, is_done) = mpsc::channel();
            thread::scope(|scope| {
                let layout = written.layout();
                let reader = scope.spawn(move || {
                    become_nobody();
                    let mut store = LiveStore::open(layout.clone(), PATIENCE).unwrap();
                    assert!(store.path_info(&first).unwrap().is_some());
                    let probe = layout.database_dir().join("probe");
                    assert!(
                        fs::write(probe, "").is_err(),
                        "the user has write permission"
                    );
                    let mut generation = store.generation().unwrap();
                    done.send(()).unwrap();
                    for (path, is_valid) in told {
                        until_changed(&mut store, generation);
                        // The change may become visible in the middle of a Nix command, before its
                        // commit.
                        while store.path_info(&path).unwrap().is_some() != is_valid {
                            generation = store.generation().unwrap();
                            until_changed(&mut store, generation);
                        }
                        generation = store.generation().unwrap();
                        done.send(()).unwrap();
                    }
                });
                // If the reader panics, its end of the channel is closed.
                let wait = || is_done.recv().is_ok();
                assert!(wait(), "{}, {settings:?}", nix.version);
                for name in ["second", "third", "fourth"] {
                    let path = written.add(name);
                    tell.send((path.clone(), true)).unwrap();
                    assert!(wait(), "{}, {settings:?}: {name} added", nix.version);
                    written.delete(&path);
                    tell.send((path, false)).unwrap();
                    assert!(wait(), "{}, {settings:?}: {name} deleted", nix.version);
                }
                drop(tell);
                reader.join().unwrap();
            });
        }
    }
}

/// The user id of `nobody`, which owns no files.
const NOBODY: u32 = 65534;

/// Runs a closure on a thread of the user `nobody`, in a store that every user may read.
fn as_nobody<T: Send>(written: &Written<'_>, work: impl FnOnce() -> T + Send) -> T {
    fs::set_permissions(written.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    thread::scope(|scope| {
        let as_nobody = scope.spawn(|| {
            become_nobody();
            work()
        });
        as_nobody.join().unwrap()
    })
}

#[test]
fn a_user_without_rights_is_not_told_of_changes_that_were_none() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        let written = Written::new(nix, "");
        let first = written.add("first");
        let database = written.database();
        // Keep the log files, as newer versions of Nix do.
        let connection = rusqlite::Connection::open(&database).unwrap();
        let keep = rusqlite::FileControl::PersistWal(&mut 1);
        connection
            .file_control(rusqlite::DEFAULT_NAME, keep)
            .unwrap();
        let checkpoint = "pragma wal_checkpoint(truncate)";
        connection.query_row(checkpoint, (), |_| Ok(())).unwrap();
        drop(connection);
        for side in ["db.sqlite-wal", "db.sqlite-shm"] {
            assert!(database.with_file_name(side).exists(), "{side}");
        }
        let layout = written.layout();
        let (mut store, generation) = as_nobody(&written, || {
            let mut store = LiveStore::open(layout, PATIENCE).unwrap();
            thread::sleep(Duration::from_millis(50));
            store.generation().unwrap();
            let generation = store.generation().unwrap();
            for _ in 0..100 {
                assert!(store.path_info(&first).unwrap().is_some());
                assert_eq!(store.generation().unwrap(), generation, "{}", nix.version);
            }
            (store, generation)
        });
        let second = written.add("second");
        as_nobody(&written, || {
            until_changed(&mut store, generation);
            assert!(store.path_info(&second).unwrap().is_some());
        });
    }
}

#[test]
fn a_user_without_rights_waits_for_a_lock_directory_only_while_it_is_there() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return;
    }
    for nix in &nixes() {
        let written = Written::new(nix, "use-sqlite-wal = false");
        let first = written.add("first");
        let lock = written.database().with_file_name("db.sqlite.lock");
        fs::create_dir(&lock).unwrap();
        let layout = written.layout();
        as_nobody(&written, || {
            let busy = LiveStore::open(layout.clone(), Duration::ZERO).unwrap_err();
            assert!(busy.is_busy(), "{busy}");
        });
        // Take the time before the other thread starts, so the measured wait cannot be too short.
        let start = Instant::now();
        let opened = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                fs::remove_dir(&lock).unwrap();
            });
            let found = as_nobody(&written, || {
                let store = LiveStore::open(layout, LONG).unwrap();
                store.path_info(&first).unwrap().is_some()
            });
            assert!(found, "{}", nix.version);
            start.elapsed()
        });
        assert!(opened >= Duration::from_millis(250), "{opened:?}");
        assert!(opened < LONG / 2, "{opened:?}");
    }
}

/// Much longer than it takes to notice that a lock is gone.
const LONG: Duration = Duration::from_secs(120);
