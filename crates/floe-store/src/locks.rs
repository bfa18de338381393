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

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::error::{IoContext, StoreError};

/// Locks a mutex of this process. A panic of another thread that held it is harmless, because no
/// thread leaves such a value half changed.
pub(crate) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a lock file as Nix does, readable by its owner alone.
pub(crate) fn open_lock_file(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .io_context("open the lock file", path)
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
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).io_context("lock", path),
        }
    }
}

/// Acquires a shared lock and waits as `lock_wait` says. `what` names the holder in messages.
pub(crate) fn lock_shared(
    file: &File,
    path: &Path,
    what: &str,
    lock_wait: &LockWait,
) -> Result<(), StoreError> {
    let operation = FlockOperation::NonBlockingLockShared;
    lock_wait.wait(what, path, || {
        Ok(try_lock(file, path, operation)?.then_some(()))
    })
}
