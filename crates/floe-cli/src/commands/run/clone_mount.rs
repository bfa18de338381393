//! Mounts a file or directory at another place.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// Clones a file or directory with all mounts below it.
pub(super) fn clone_mount(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(CWD, path, flags)
}

/// Mounts a clone at a place.
pub(super) fn move_to(mount: &OwnedFd, place: &Path) -> Result<(), Errno> {
    move_mount(
        mount,
        "",
        CWD,
        place,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}
