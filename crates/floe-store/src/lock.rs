//! The locks of a Nix store: `flock` on files that Nix knows by name.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use floe_format::StorePath;
use rustix::fs::{FlockOperation, flock};

use crate::error::{At, StoreError};
use crate::layout::Layout;
use crate::patience::Patience;

/// Opens a lock file as Nix does, readable by its owner alone.
pub(crate) fn open_lock_file(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .at("opening the lock file", path)
}

/// Tries to take a lock; `false` if somebody else holds it.
pub(crate) fn try_lock(
    file: &File,
    path: &Path,
    operation: FlockOperation,
) -> Result<bool, StoreError> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).at("locking", path),
        }
    }
}

/// Takes a shared lock, patiently; `what` says whose lock it is.
pub(crate) fn lock_shared(
    file: &File,
    path: &Path,
    what: &str,
    patience: &Patience,
) -> Result<(), StoreError> {
    let operation = FlockOperation::NonBlockingLockShared;
    patience.wait(what, path, || {
        Ok(try_lock(file, path, operation)?.then_some(()))
    })
}

/// The lock on one path, `<path>.lock`: a store path, which whoever creates or deletes it holds, or
/// a profile.
/// Dropping it releases the lock and removes the file.
#[derive(Debug)]
pub(crate) struct PathLock {
    file: File,
    path: PathBuf,
}

impl PathLock {
    /// Takes the lock on a path; `None` if somebody else holds it.
    pub(crate) fn try_acquire(
        layout: &Layout,
        path: &StorePath,
    ) -> Result<Option<PathLock>, StoreError> {
        PathLock::try_at(layout.real_store.join(format!("{path}.lock")))
    }

    /// The lock on any other place that Nix locks so, such as a profile: `<place>.lock`. Waits
    /// patiently.
    pub(crate) fn acquire(place: &Path, patience: &Patience) -> Result<PathLock, StoreError> {
        let mut lock_path = place.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let what = format!("whoever has locked {}", place.display());
        patience.wait(&what, &lock_path, || PathLock::try_at(lock_path.clone()))
    }

    fn try_at(lock_path: PathBuf) -> Result<Option<PathLock>, StoreError> {
        loop {
            let file = open_lock_file(&lock_path)?;
            if !try_lock(&file, &lock_path, FlockOperation::NonBlockingLockExclusive)? {
                return Ok(None);
            }
            // A holder that lets go writes a byte and unlinks: what was locked here is then no
            // longer the file of that name, and excludes nobody.
            let size = file
                .metadata()
                .at("examining the lock file", &lock_path)?
                .size();
            if size == 0 {
                return Ok(Some(PathLock {
                    file,
                    path: lock_path,
                }));
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Best effort, as in Nix: a lock file that stays behind is untidy, not wrong.
        let _: io::Result<()> = std::fs::remove_file(&self.path);
        let _: io::Result<()> = self.file.write_all(b"d");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_format::StoreDir;

    #[test]
    fn a_path_lock_excludes_others_and_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::in_root(root.path(), StoreDir::default());
        std::fs::create_dir_all(&layout.real_store).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let lock = PathLock::try_acquire(&layout, &path).unwrap().unwrap();
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_none());
        drop(lock);
        assert_eq!(std::fs::read_dir(&layout.real_store).unwrap().count(), 0);
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_some());
    }

    #[test]
    fn a_stale_lock_file_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::in_root(root.path(), StoreDir::default());
        std::fs::create_dir_all(&layout.real_store).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let waiting = open_lock_file(&layout.real_store.join(format!("{path}.lock"))).unwrap();
        drop(PathLock::try_acquire(&layout, &path).unwrap().unwrap());
        // The file that was opened before is locked with ease, and is no longer the lock.
        let operation = FlockOperation::NonBlockingLockExclusive;
        assert!(try_lock(&waiting, root.path(), operation).unwrap());
        assert_ne!(waiting.metadata().unwrap().size(), 0);
        assert!(PathLock::try_acquire(&layout, &path).unwrap().is_some());
    }
}
