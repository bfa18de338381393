//! The locks of a Nix store: `flock` on files that Nix knows by name.

mod gc_lock;
mod lock_wait;
mod path_lock;

pub(crate) use gc_lock::{COLLECTOR, GcLock};
pub use lock_wait::LockWait;
pub(crate) use lock_wait::{
    LOCK_POLL_INTERVAL, LOCK_TIMEOUT, LockWaitScope, NOTIFY_AFTER, is_interrupted,
    wait_for_database,
};
pub(crate) use path_lock::PathLock;

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::disk::Directory;
use crate::error::{IoContext, StoreError};

/// Opens a lock file that only its owner may open, and creates it if it does not exist, as Nix
/// does. A symbolic link is not followed: its creator would choose the file that floe creates and
/// locks.
///
/// Errors: those of the system; [`std::io::ErrorKind::InvalidData`] for a link or another file that
/// is not regular.
pub fn open_lock_file(path: &Path) -> Result<File, StoreError> {
    let (directory, name) = Directory::open_parent(path)?;
    let opened = directory.entry(name).open_or_create_file();
    let (file, _) = opened.io_context("open the lock file", path)?;
    Ok(file)
}

/// Tries to acquire a lock. Returns `false` if another process or file descriptor holds it.
pub(crate) fn try_lock(
    file: &File,
    path: &Path,
    operation: FlockOperation,
) -> Result<bool, StoreError> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).io_context("lock", path),
        }
    }
}
