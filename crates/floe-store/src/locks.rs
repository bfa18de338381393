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
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::{IoContext, StoreError};

/// Opens a lock file as Nix does.
pub(crate) fn open_lock_file(path: &Path) -> Result<File, StoreError> {
    open_private_file(path).io_context("open the lock file", path)
}

/// Opens a lock file as [`open_lock_file`] does, unless it is a symbolic link. The
/// creator of the link would otherwise choose the file that floe creates, locks and writes to.
///
/// Errors: also [`io::ErrorKind::InvalidData`] for a symbolic link.
pub(crate) fn open_lock_file_nofollow(path: &Path) -> Result<File, StoreError> {
    let mut options = private_file();
    let opened = options.custom_flags(NO_LINK).open(path);
    let opened = opened.map_err(|error| match error.raw_os_error() {
        Some(number) if number == Errno::LOOP.raw_os_error() => {
            io::Error::new(io::ErrorKind::InvalidData, SYMBOLIC_LINK)
        }
        _ => error,
    });
    opened.io_context("open the lock file", path)
}

/// Opens a file that only its owner may read, and creates it if it does not exist.
pub(crate) fn open_private_file(path: &Path) -> io::Result<File> {
    private_file().open(path)
}

fn private_file() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options
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

/// Neither follows a link nor waits for a device.
const NO_LINK: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()).cast_signed();

/// The reason in the error about a lock file that is a symbolic link.
const SYMBOLIC_LINK: &str = "the file is a symbolic link, so it is not a lock";
