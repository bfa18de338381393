//! Removes trees.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, chmod, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::disk::list_directory;
use crate::disk::mount_id::{Examined, MountId, examine, mount_of_parent, mounted_error, place_of};
use crate::error::{IoContext, StoreError};

/// Removes a file or directory, sealed or not, and returns how many bytes this frees. Never follows
/// a symbolic link. Other processes may remove it at the same time.
///
/// As in Nix, a file with a further hard link counts, because that link is most often one in
/// `.links`, and is removed next.
///
/// Errors: those of the system, and an error about another file system that is mounted in the tree,
/// whose files stay. Other files of the tree are removed nevertheless.
pub(crate) fn remove_and_count(parent: impl AsFd, name: &CStr) -> Result<u64, RemoveError> {
    let parent = parent.as_fd();
    let mut removal = Removal::default();
    match mount_of_parent(parent, name) {
        Ok(mount) => {
            removal.mount = mount;
            removal.remove(parent, name, None, 0);
        }
        Err(error) => removal.keep_error(Err(error)),
    }
    let bytes = removal.bytes;
    match removal.first_error {
        None => Ok(bytes),
        Some(source) => Err(RemoveError { source, bytes }),
    }
}

/// The removal of a tree failed.
#[derive(Debug)]
pub(crate) struct RemoveError {
    /// The first error.
    pub(crate) source: io::Error,
    /// The bytes that were freed nevertheless.
    pub(crate) bytes: u64,
}

/// A removal with its result so far.
#[derive(Default)]
struct Removal {
    /// The mount of the directory that has the tree.
    mount: Option<MountId>,
    bytes: u64,
    first_error: Option<io::Error>,
    /// The names of deep directories in the directory of the whole tree.
    deep: Vec<CString>,
}

impl Removal {
    /// Removes a file or directory. `top` is the directory of the whole tree.
    fn remove(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        top: Option<BorrowedFd<'_>>,
        depth: usize,
    ) {
        let removed = match examine(parent, name) {
            Ok(found) if self.mount.is_some_and(|mount| found.is_mounted_on(mount)) => {
                let error = mounted_error(&place_of(parent, name));
                self.first_error.get_or_insert(error);
                return;
            }
            Ok(found) if found.is_directory() => {
                match top.filter(|_| depth == DEPTH_MAX) {
                    Some(top) => self.move_up(parent, name, &found, top),
                    None => self.remove_contents(parent, name, &found, top, depth),
                }
                unlinkat(parent, name, AtFlags::REMOVEDIR)
            }
            Ok(found) => unlinkat(parent, name, AtFlags::empty())
                .inspect(|()| self.bytes += counted_bytes(&found)),
            Err(error) => Err(error),
        };
        self.keep_error(removed);
    }

    fn remove_contents(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        found: &Examined,
        top: Option<BorrowedFd<'_>>,
        depth: usize,
    ) {
        let listed = open_to_empty(parent, name, found.mode).and_then(|directory| {
            let names = names(&directory)?;
            Ok((directory, names))
        });
        match listed {
            Ok((directory, names)) => {
                let top = top.unwrap_or(directory.as_fd());
                for name in names {
                    self.remove(directory.as_fd(), &name, Some(top), depth + 1);
                }
                while depth == 0
                    && let Some(name) = self.deep.pop()
                {
                    self.remove(top, &name, Some(top), 1);
                }
            }
            Err(error) => self.keep_error(Err(error)),
        }
    }

    /// Moves a directory that is too deep into the directory of the whole tree, to remove it later.
    fn move_up(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        found: &Examined,
        top: BorrowedFd<'_>,
    ) {
        let number = NEXT_DEEP.fetch_add(1, Ordering::Relaxed);
        let new = CString::new(format!("floe-deep-{}-{number}", std::process::id()));
        let new = new.unwrap_or_default();
        // Moving a directory changes it, because it has an entry for its parent.
        let moved = open_to_empty(parent, name, found.mode)
            .and_then(|_| renameat_with(parent, name, top, &new, RenameFlags::NOREPLACE));
        match moved {
            Ok(()) => self.deep.push(new),
            // An overlay file system cannot rename a directory of a lower layer.
            Err(Errno::XDEV) => self.remove_contents(parent, name, found, Some(top), DEPTH_MAX),
            Err(_) => self.keep_error(moved),
        }
    }

    fn keep_error(&mut self, result: Result<(), Errno>) {
        if let Err(error) = result
            && error != Errno::NOENT
        {
            self.first_error.get_or_insert(error.into());
        }
    }
}

/// Opens a directory whose entries this user will remove.
pub(super) fn open_to_empty(
    parent: BorrowedFd<'_>,
    name: &CStr,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(mode);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(parent, name, flags | OFlags::RDONLY, Mode::empty());
    // Only root may empty a sealed directory.
    if mode.contains(Mode::RWXU) || rustix::process::geteuid().is_root() {
        return open();
    }
    // Another process may exchange the directory for a link, which must not be followed. A
    // descriptor for the path alone exists also for a directory that its owner may not read.
    let directory = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
    chmod(place, mode | Mode::RWXU)?;
    open()
}

/// Lists a directory without `.` and `..`.
pub(super) fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Returns the size of a file that is about to be removed, if its removal frees space.
fn counted_bytes(found: &Examined) -> u64 {
    match found.links {
        0..=2 => found.size,
        _ => 0,
    }
}

/// Returns the sum of the sizes of the files of a tree, in bytes. Files that cannot be examined
/// count as empty, and so do other file systems that are mounted in the tree.
pub(crate) fn tree_bytes(path: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut mount = None;
    let mut todo = vec![path.to_path_buf()];
    while let Some(path) = todo.pop() {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let Ok(found) = examine(CWD, &name) else {
            continue;
        };
        let mount = *mount.get_or_insert_with(|| mount_of_parent(CWD, &name).ok().flatten());
        if mount.is_some_and(|mount| found.is_mounted_on(mount)) {
            continue;
        }
        if found.is_directory() {
            let entries = list_directory(&path).into_iter().flatten().flatten();
            todo.extend(entries.map(|entry| entry.path().to_owned()));
        } else {
            bytes = bytes.saturating_add(found.size);
        }
    }
    bytes
}

/// Removes a tree, sealed or not, if it exists. Other processes may remove it at the same time.
///
/// Errors: those of the system. Other files of the tree are removed nevertheless.
pub fn remove_tree(path: &Path) -> Result<(), StoreError> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let removed = name.and_then(|name| remove_and_count(CWD, &name).map_err(|it| it.source));
    removed.map(drop).io_context("remove", path)
}

/// Each level needs a descriptor, of which a process may have a thousand, and several workers
/// remove trees.
const DEPTH_MAX: usize = 50;

/// Distinguishes the names of moved directories.
static NEXT_DEEP: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    #[test]
    fn concurrent_removals_of_one_tree_all_succeed() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        for _ in 0..ROUNDS {
            for n in 0..20 {
                let directory = tree.join(format!("{n}/deep"));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("file"), "").unwrap();
            }
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| remove_tree(&tree).unwrap());
                }
            });
            assert!(!tree.exists());
        }
    }

    /// High enough that some calls meet a file that another thread has just removed.
    const ROUNDS: usize = 50;
}
