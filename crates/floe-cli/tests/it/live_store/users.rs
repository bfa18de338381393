//! Readers who may not write beside the database.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::mpsc;
use std::thread;

use floe_format::StorePath;
use floe_store::LiveStore;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{PATIENCE, Written, until_changed};
use crate::support::{nixes, skip};

/// Makes this thread one of `nobody`.
fn become_nobody() {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

/// Removes the files beside a database in an orderly way.
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
        skip("setuid", "only root may become another user");
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
                    assert!(fs::write(probe, "").is_err(), "the user has rights");
                    let mut generation = store.generation().unwrap();
                    done.send(()).unwrap();
                    for (path, is_valid) in told {
                        until_changed(&mut store, generation);
                        // The file may be noticed in the middle of what Nix does.
                        while store.path_info(&path).unwrap().is_some() != is_valid {
                            generation = store.generation().unwrap();
                            until_changed(&mut store, generation);
                        }
                        generation = store.generation().unwrap();
                        done.send(()).unwrap();
                    }
                });
                // Where the reader fails, its end of the channel is closed.
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

/// The user who owns nothing.
const NOBODY: u32 = 65534;
