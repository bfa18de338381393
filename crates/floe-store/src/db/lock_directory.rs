//! The lock directory of a database without a write-ahead log, and its removal after a crash.
//!
//! SQLite creates the directory for a query or a transaction, and a killed process leaves it. Nix
//! and floe hold the big lock of the store shared while they may create the directory. If a
//! process gets the big lock exclusively, the directory has no owner.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::busy::{BusyPolicy, wait_until};
use super::side_file;
use crate::locks::{open_lock_file, try_lock};

/// Returns the lock directory of a database file.
pub(super) fn lock_directory(file: &Path) -> PathBuf {
    side_file(file, ".lock")
}

/// Removes the lock directory if no process has the database open. `big_lock` is the open file, not
/// locked before; its lock may be exclusive afterwards.
pub(crate) fn remove_stale_lock_directory(file: &Path, big_lock: &File) {
    let directory = lock_directory(file);
    if !directory.exists() {
        return;
    }
    let operation = FlockOperation::NonBlockingLockExclusive;
    if try_lock(big_lock, &big_lock_file(file), operation).unwrap_or(false) {
        // If the removal fails, the queries wait for the directory, and their error names it.
        let _: std::io::Result<()> = fs::remove_dir(directory);
    }
}

/// Opens the big lock for a reader. Returns `None` if this user may not.
pub(super) fn open_big_lock(file: &Path) -> Option<File> {
    open_lock_file(&big_lock_file(file)).ok()
}

/// Acquires the big lock shared, after removing a lock directory without an owner. Returns `false`
/// if the wait timed out.
pub(super) fn lock_shared(file: &Path, big_lock: &File, policy: BusyPolicy) -> bool {
    remove_stale_lock_directory(file, big_lock);
    let operation = FlockOperation::NonBlockingLockShared;
    // On a file system without such locks, no process can remove the directory of another.
    wait_until(policy, || {
        try_lock(big_lock, &big_lock_file(file), operation).unwrap_or(true)
    })
}

fn big_lock_file(file: &Path) -> PathBuf {
    file.with_file_name("big-lock")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use floe_format::StoreDir;

    use super::*;
    use crate::db::{AccessMode, Database, MissingTables};
    use crate::disk::StoreLayout;
    use crate::error::StoreError;
    use crate::options::WriteOptions;

    #[test]
    fn lock_directory_without_owner_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        let options = WriteOptions {
            use_sqlite_wal: false,
            ..WriteOptions::default()
        };
        drop(Database::open_writable(&layout, &options.database(MissingTables::Create)).unwrap());
        let directory = layout.database_dir().join("db.sqlite.lock");
        let open = || Database::open_for_reading(&layout, BusyPolicy::Timeout(Duration::ZERO));

        fs::create_dir(&directory).unwrap();
        let (reader, access) = open().unwrap();
        assert_eq!(access, AccessMode::LockDirectory);
        assert!(!directory.exists());

        // The open reader may be the owner.
        fs::create_dir(&directory).unwrap();
        let busy = [open().unwrap_err(), reader.valid_paths().unwrap_err()];
        for error in busy {
            assert!(error.is_busy(), "{error}");
            assert!(matches!(error, StoreError::LockDirectory { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(directory.to_str().unwrap()), "{text}");
        }
        assert!(directory.exists());
        drop(reader);
        open().unwrap();
        assert!(!directory.exists());
    }
}
