//! A directory in memory for the files of the tests.
//!
//! The tests make and delete some hundred thousand small files. An ext4 without a journal examines
//! the inodes that were deleted in the last seconds for each new file, which takes a third of the
//! CPU time of all tests. A run with `--full` uses the usual directory, so that it tests a disk.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use tempfile::TempDir;

/// The variable for the directory of temporary files.
pub(super) const VARIABLE: &str = "TMPDIR";

/// Makes the directory. `None` if the user has chosen another one, or if the memory of this machine
/// has too little room or runs no programs.
pub(super) fn in_memory() -> Option<TempDir> {
    if env::var_os(VARIABLE).is_some() {
        return None;
    }
    let memory = Path::new("/dev/shm");
    let found = statvfs(memory).ok()?;
    let runs_programs = !found.f_flag.contains(StatVfsMountFlags::NOEXEC);
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if !runs_programs || free < FREE_MIN {
        return None;
    }
    let directory = tempfile::Builder::new()
        .prefix("floe-test-")
        .tempdir_in(memory)
        .ok()?;
    // Some tests run programs as other users.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).ok()?;
    Some(directory)
}

/// Several times what the tests use at once, in bytes.
const FREE_MIN: u64 = 8 << 30;
