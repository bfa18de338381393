//! The lock on a single path: `<path>.lock`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use floe_format::StorePath;
use rustix::fs::FlockOperation;

use super::lock_wait::LockWait;
use super::try_lock;
use crate::disk::{Directory, Entry, StoreLayout};
use crate::error::{IoContext, StoreError};

/// The lock on one path, `<path>.lock`. A process holds it while it creates or deletes
/// a store path or changes a profile. Dropping the value releases the lock. It also removes the
/// file, unless the file may belong to a user.
#[derive(Debug)]
pub(crate) struct PathLock {
    file: File,
    directory: Arc<Directory>,
    name: OsString,
    /// True outside of the store, where the name may be that of a user's file, such as
    /// `flake.lock`.
    keep_file: bool,
}

impl PathLock {
    /// Tries to acquire the lock on a store path. Returns `None` if another process holds the lock
    /// or has just released it.
    ///
    /// Errors: those of the system, and a lock file that is a symbolic link or not empty, because
    /// lock files have no contents.
    pub(crate) fn try_acquire(
        layout: &StoreLayout,
        path: &StorePath,
    ) -> Result<Option<PathLock>, StoreError> {
        let directory = Arc::new(Directory::open(&layout.real_store_dir)?);
        let name = OsString::from(format!("{path}.lock"));
        let Some(mut lock) = PathLock::try_acquire_at(&directory, &name)? else {
            return Ok(None);
        };
        // Nix would take it for a lock that was just released, and retry without end.
        if lock.metadata()?.size() != 0 {
            lock.keep_file = true;
            let source = io::Error::new(io::ErrorKind::InvalidData, NOT_EMPTY);
            return Err(source).io_context("acquire the lock", lock.path());
        }
        // A killed process may have left the file.
        lock.keep_file = false;
        Ok(Some(lock))
    }

    /// Acquires the lock on a name outside of the store that Nix locks in the same way, such as a
    /// profile: `<name>.lock` beside it. Waits as `lock_wait` says. A file that existed before
    /// serves as the lock, whatever its contents, and stays.
    ///
    /// Errors: [`StoreError::LockTimeout`], [`StoreError::Interrupted`], and those of the system.
    pub(crate) fn acquire(
        directory: &Arc<Directory>,
        name: &OsStr,
        lock_wait: &LockWait,
    ) -> Result<PathLock, StoreError> {
        let place = directory.path().join(name);
        let what = format!("the process that has locked {}", place.display());
        let mut name = name.to_owned();
        name.push(".lock");
        let lock_path = directory.path().join(&name);
        lock_wait.wait(&what, &lock_path, || {
            PathLock::try_acquire_at(directory, &name)
        })
    }

    /// Tries to lock a file, which it creates if it does not exist. Only a file that this attempt
    /// has created is removed when the lock is released.
    fn try_acquire_at(
        directory: &Arc<Directory>,
        name: &OsStr,
    ) -> Result<Option<PathLock>, StoreError> {
        let entry = directory.entry(name);
        let opened = entry.open_or_create_file();
        let (file, is_created) = opened.io_context("open the lock file", entry.path())?;
        if !try_lock(
            &file,
            &entry.path(),
            FlockOperation::NonBlockingLockExclusive,
        )? {
            return Ok(None);
        }
        let mut lock = PathLock {
            file,
            directory: directory.clone(),
            name: name.to_owned(),
            keep_file: true,
        };
        // The previous holder unlinks the file before it releases the lock. This process may then
        // have locked a file that no longer has a name, which excludes no other process.
        let own = lock.metadata()?;
        let named = match entry.stat() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            named => named.io_context("examine the lock file", entry.path())?,
        };
        let is_named = (named.st_dev, named.st_ino) == (own.dev(), own.ino());
        lock.keep_file = !(is_named && is_created);
        Ok(is_named.then_some(lock))
    }

    fn entry(&self) -> Entry<'_> {
        self.directory.entry(&self.name)
    }

    fn path(&self) -> PathBuf {
        self.entry().path()
    }

    fn metadata(&self) -> Result<fs::Metadata, StoreError> {
        let metadata = self.file.metadata();
        metadata.io_context("examine the lock file", self.path())
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        if self.keep_file {
            return;
        }
        // Best effort, as in Nix. A process that opened the file before its removal acquires the
        // lock next, and recognises a stale file by its size.
        let _: io::Result<()> = self.entry().retire(&self.file);
    }
}

/// The reason in the error about a lock file that is not empty.
const NOT_EMPTY: &str = "the file is not empty, so it is not a lock";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::locks::open_lock_file;
    use floe_format::StoreDir;

    #[test]
    fn path_lock_is_exclusive_and_removes_its_file() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        std::fs::create_dir_all(&layout.real_store_dir).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let lock = PathLock::try_acquire(&layout, &path).unwrap().unwrap();
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_none());
        drop(lock);
        assert_eq!(
            std::fs::read_dir(&layout.real_store_dir).unwrap().count(),
            0
        );
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_some());
    }

    #[test]
    fn non_empty_lock_file_is_an_error_and_stays() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(&layout.real_store_dir).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let file = layout.real_store_dir.join(format!("{path}.lock"));
        fs::write(&file, "contents").unwrap();
        let error = PathLock::try_acquire(&layout, &path).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(NOT_EMPTY), "{error}");
        assert!(error.contains(&file.display().to_string()), "{error}");
        assert_eq!(fs::read(&file).unwrap(), b"contents");
        // A killed process leaves an empty lock file.
        fs::write(&file, "").unwrap();
        drop(PathLock::try_acquire(&layout, &path).unwrap().unwrap());
        assert!(!file.exists());
    }

    /// A planted link must not make floe create, lock or write to a file elsewhere.
    #[test]
    fn symbolic_link_as_lock_file_is_an_error_and_stays() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(&layout.real_store_dir).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let link = layout.real_store_dir.join(format!("{path}.lock"));
        let (absent, present) = (root.path().join("absent"), root.path().join("present"));
        fs::write(&present, "").unwrap();
        for target in [&absent, &present] {
            symlink(target, &link).unwrap();
            let error = PathLock::try_acquire(&layout, &path).unwrap_err();
            let error = error.into_path_obstructed(&path).unwrap().to_string();
            assert!(error.contains("the file is a symbolic link"), "{error}");
            assert!(
                error.ends_with("; try removing it and running again"),
                "{error}"
            );
            assert_eq!(fs::read_link(&link).unwrap(), *target);
            fs::remove_file(&link).unwrap();
        }
        assert!(!absent.exists());
        assert_eq!(fs::read(&present).unwrap(), b"");
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_some());
    }

    /// Profiles lie among a user's own files, such as `flake.lock` beside `flake`.
    #[test]
    fn profile_lock_keeps_existing_user_file() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("flake.lock");
        let directory = Arc::new(Directory::open(scratch.path()).unwrap());
        let acquire = || PathLock::acquire(&directory, "flake".as_ref(), &LockWait::default());
        for contents in ["{}", ""] {
            fs::write(&file, contents).unwrap();
            let lock = acquire().unwrap();
            let again = PathLock::try_acquire_at(&directory, "flake.lock".as_ref());
            assert!(again.unwrap().is_none());
            drop(lock);
            assert_eq!(fs::read_to_string(&file).unwrap(), contents);
        }
        // A lock file that this process created is removed.
        fs::remove_file(&file).unwrap();
        let lock = acquire().unwrap();
        assert!(file.exists());
        drop(lock);
        assert!(!file.exists());
    }

    #[test]
    fn unlinked_lock_file_is_not_a_lock() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        std::fs::create_dir_all(&layout.real_store_dir).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let waiting = open_lock_file(&layout.real_store_dir.join(format!("{path}.lock"))).unwrap();
        drop(PathLock::try_acquire(&layout, &path).unwrap().unwrap());
        // Locking the file that was opened before succeeds, but the file no longer has the name.
        let operation = FlockOperation::NonBlockingLockExclusive;
        assert!(try_lock(&waiting, root.path(), operation).unwrap());
        assert_ne!(waiting.metadata().unwrap().size(), 0);
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_some());
    }
}
