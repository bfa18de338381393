//! The creation of an empty store, and its removal if no path was added.
//!
//! Every process that has a store open for writing holds the big lock shared. The process that
//! removes a store holds it exclusively, and removes it last. A process that waits for the lock
//! meanwhile finds out that the file of the lock is gone, and creates the store again.
//!
//! Not guaranteed: that a new store of a failed copy is removed. If another program has written
//! anything to it, or has it open for writing, the store stays. A server that has just opened the
//! empty store answers with an error until the store exists again.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::WritableStore;
use crate::db::remove_stale_lock_directory;
use crate::disk::{Directory, StoreLayout, list_directory};
use crate::error::{IoContext as _, StoreError};
use crate::locks::{LockWait, open_lock_file, try_lock};

/// Creates Nix's directories with Nix's modes, whatever the umask. Returns those that did not
/// exist, parents first.
pub(crate) fn create_directories(layout: &StoreLayout) -> Result<Vec<PathBuf>, StoreError> {
    let mut created = Vec::new();
    create_with_parents(&layout.real_store_dir, &mut created)?;
    create_with_parents(&layout.links_dir(), &mut created)?;
    for name in ["profiles/per-user", "gcroots/per-user", "temproots", "db"] {
        create_with_parents(&layout.state_dir.join(name), &mut created)?;
    }
    Ok(created)
}

/// Creates a directory and its parents, each with mode 0755, whatever the umask.
fn create_with_parents(path: &Path, created: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    let mut is_new = create_one_directory(path);
    if let Err(StoreError::Io { source, .. }) = &is_new
        && source.kind() == io::ErrorKind::NotFound
        && let Some(parent) = path.parent()
    {
        create_with_parents(parent, created)?;
        // One more attempt only. If it fails although the parent exists, the error is real.
        is_new = create_one_directory(path);
    }
    if is_new? {
        created.push(path.to_owned());
    }
    Ok(())
}

/// Creates one directory. Returns `false` if it exists.
fn create_one_directory(path: &Path) -> Result<bool, StoreError> {
    // The usual case, also for `/`, which has no parent.
    if path.is_dir() {
        return Ok(false);
    }
    let (parent, name) = Directory::open_parent(path)?;
    let created = parent.create_subdirectory(name);
    created.io_context("create the directory", path)
}

/// Waits for the big lock of the store, and keeps it shared. Adds directories that it had to create
/// again to `created`.
pub(super) fn lock_store(
    layout: &StoreLayout,
    lock_wait: &LockWait,
    created: &mut Vec<PathBuf>,
) -> Result<File, StoreError> {
    let path = layout.big_lock();
    loop {
        let mut opened = open_lock_file(&path);
        if matches!(&opened, Err(StoreError::Io { source, .. })
            if source.kind() == io::ErrorKind::NotFound)
        {
            created.extend(create_directories(layout)?);
            opened = open_lock_file(&path);
        }
        let lock = opened?;
        remove_stale_lock_directory(&layout.database_dir().join("db.sqlite"), &lock);
        lock_wait.wait("the big lock of the store", &path, || {
            let operation = FlockOperation::NonBlockingLockShared;
            Ok(try_lock(&lock, &path, operation)?.then_some(()))
        })?;
        let is_removed = lock.metadata().io_context("examine", &path)?.nlink() == 0;
        // No process removes a store while this lock is held.
        created.extend(create_directories(layout)?);
        if !is_removed {
            return Ok(lock);
        }
    }
}

impl WritableStore {
    /// Removes the store if this process has created it, if it has no paths and no trees for the
    /// next run, and if no other process has it open. `temp_roots` is the name of the writer's file
    /// of temporary roots.
    pub(crate) fn remove_if_unused(&self, temp_roots: &str) {
        if !self.created.contains(&self.layout.database_dir()) {
            return;
        }
        let path = self.layout.big_lock();
        let try_lock = |operation| try_lock(&self.big_lock, &path, operation);
        let has_no_paths = || self.database().last_row().is_ok_and(|row| row == 0);
        match try_lock(FlockOperation::NonBlockingLockExclusive) {
            Ok(true) if self.is_empty(temp_roots) && has_no_paths() => {
                self.remove_files(temp_roots);
            }
            // A failed attempt has released the shared lock.
            _ => {
                let _: Result<bool, StoreError> = try_lock(FlockOperation::NonBlockingLockShared);
            }
        }
    }

    fn is_empty(&self, temp_roots: &str) -> bool {
        let names = |directory: &Path| -> io::Result<Vec<String>> {
            let names: io::Result<Vec<_>> = list_directory(directory)?
                .map(|entry| Ok(entry?.file_name().to_owned()))
                .collect();
            let lossy = names?.into_iter();
            Ok(lossy.map(|it| it.to_string_lossy().into_owned()).collect())
        };
        let has_only = |directory: &Path, is_own: &dyn Fn(&str) -> bool| {
            names(directory).is_ok_and(|names| names.iter().all(|name| is_own(name)))
        };
        let layout = &self.layout;
        has_only(&layout.real_store_dir, &|name| name == ".links")
            && has_only(&layout.links_dir(), &|_| false)
            && has_only(&layout.database_dir(), &|name| {
                FILES.contains(&name) || name == temp_roots
            })
    }

    fn remove_files(&self, temp_roots: &str) {
        let (layout, database) = (&self.layout, self.layout.database_dir());
        let remove = |path: PathBuf| {
            // A file that stays also keeps its directory.
            if let Ok((directory, name)) = Directory::open_parent(&path) {
                let _: io::Result<()> = directory.entry(name).remove();
            }
        };
        let remove_directory = |path: &Path| {
            if let Ok((parent, name)) = Directory::open_parent(path) {
                let _: io::Result<()> = parent.entry(name).remove_directory();
            }
        };
        remove(layout.temp_roots_dir().join(temp_roots));
        remove(database.join(temp_roots));
        remove(layout.state_dir.join("gc.lock"));
        let is_last = |name: &&str| *name != BIG_LOCK;
        FILES
            .into_iter()
            .filter(is_last)
            .for_each(|file| remove(database.join(file)));
        // The directory of the lock and its parents go last.
        let (parents, others): (Vec<&PathBuf>, Vec<_>) =
            self.created.iter().partition(|it| database.starts_with(it));
        for directory in others.into_iter().rev() {
            remove_directory(directory);
        }
        remove(layout.big_lock());
        for directory in parents.into_iter().rev() {
            remove_directory(directory);
        }
    }
}

const BIG_LOCK: &str = "big-lock";

/// The files that a writer creates beside the database.
const FILES: [&str; 9] = [
    "db.sqlite",
    "db.sqlite-journal",
    "db.sqlite-shm",
    "db.sqlite-wal",
    "floe-sync-record",
    "floe-sync-record.lock",
    "reserved",
    "schema",
    BIG_LOCK,
];
