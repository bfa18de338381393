//! Replaces a tree by another one, file by file, where the file system cannot exchange the two in
//! one step. Overlay file systems refuse to rename a directory of a lower layer, and some network
//! file systems have no exchange.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Stat, renameat, statat};
use rustix::io::Errno;

use super::remove::{names, open_to_empty, remove_and_count};
use super::unpack::seal_directory;
use crate::disk::mount_id::check_same_mount;
use crate::error::{IoContext as _, StoreError};

/// Moves the files of the tree `new` to their places in the tree at `place`, and removes the other
/// files there. Leaves empty directories at `new`.
///
/// Each file is replaced by one rename, so the tree and each file that both trees have exist at
/// every moment, except where one tree has a directory and the other one has none. After an error
/// or a kill, the tree at `place` has files of both.
///
/// Errors: those of the system.
pub(crate) fn replace_tree(new: &Path, place: &Path) -> Result<(), StoreError> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let names = name(new).and_then(|new| Ok((new, name(place)?)));
    let (new_name, old_name) = names.io_context("replace", place)?;
    let (new, old) = (Node::new(CWD, &new_name), Node::new(CWD, &old_name));
    replace(&new, &old).io_context("replace", place)
}

/// A file or directory.
struct Node<'a> {
    parent: BorrowedFd<'a>,
    name: &'a CStr,
}

impl<'a> Node<'a> {
    fn new(parent: BorrowedFd<'a>, name: &'a CStr) -> Node<'a> {
        Node { parent, name }
    }

    fn stat(&self) -> Result<Stat, Errno> {
        statat(self.parent, self.name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn replace(new: &Node<'_>, old: &Node<'_>) -> io::Result<()> {
    let new_stat = new.stat()?;
    let old_stat = match old.stat() {
        Err(Errno::NOENT) => None,
        stat => Some(stat?),
    };
    match old_stat {
        Some(old_stat) if is_directory(&old_stat) && is_directory(&new_stat) => {
            return replace_contents((new, &new_stat), (old, &old_stat));
        }
        Some(old_stat) if is_directory(&old_stat) || is_directory(&new_stat) => {
            let removed = remove_and_count(old.parent, old.name);
            removed.map_err(|error| error.source)?;
        }
        _ => {}
    }
    if !is_directory(&new_stat) {
        return Ok(renameat(new.parent, new.name, old.parent, old.name)?);
    }
    // Moving a directory changes it, because it has an entry for its parent.
    let directory = open_to_empty(new.parent, new.name, new_stat.st_mode)?;
    renameat(new.parent, new.name, old.parent, old.name)?;
    Ok(seal_directory(&directory)?)
}

fn replace_contents(
    (new, new_stat): (&Node<'_>, &Stat),
    (old, old_stat): (&Node<'_>, &Stat),
) -> io::Result<()> {
    check_same_mount(old.parent, old.name)?;
    let new_directory = open_to_empty(new.parent, new.name, new_stat.st_mode)?;
    let old_directory = open_to_empty(old.parent, old.name, old_stat.st_mode)?;
    let new_names = names(&new_directory)?;
    for name in names(&old_directory)? {
        if !new_names.contains(&name) {
            let removed = remove_and_count(&old_directory, &name);
            removed.map_err(|error| error.source)?;
        }
    }
    for name in &new_names {
        let new = Node::new(new_directory.as_fd(), name);
        replace(&new, &Node::new(old_directory.as_fd(), name))?;
    }
    Ok(seal_directory(&old_directory)?)
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}
