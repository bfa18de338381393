//! Removes trees.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, chmod, openat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

use crate::error::{IoContext, StoreError};
use crate::list_directory::list_directory;

/// Removes a file or directory, sealed or not, and returns how many bytes this frees. Never follows
/// a symbolic link. Other processes may remove it at the same time.
///
/// As in Nix, a file with a further hard link counts, because that link is most often one in
/// `.links`, and is removed next.
///
/// Errors: those of the system. Other files of the tree are removed nevertheless.
pub(crate) fn remove_and_count(parent: impl AsFd, name: &CStr) -> Result<u64, RemoveError> {
    let mut removal = Removal::default();
    removal.remove(parent.as_fd(), name, None, 0);
    match removal.first_error {
        None => Ok(removal.bytes),
        Some(errno) => Err(RemoveError {
            errno,
            bytes: removal.bytes,
        }),
    }
}

/// The removal of a tree failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoveError {
    /// The first error.
    pub(crate) errno: Errno,
    /// The bytes that were freed nevertheless.
    pub(crate) bytes: u64,
}

/// A removal with its result so far.
#[derive(Default)]
struct Removal {
    bytes: u64,
    first_error: Option<Errno>,
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
        let removed = match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => {
                match top.filter(|_| depth == DEPTH_MAX) {
                    Some(top) => self.move_up(parent, name, &stat, top),
                    None => self.remove_contents(parent, name, &stat, top, depth),
                }
                unlinkat(parent, name, AtFlags::REMOVEDIR)
            }
            Ok(stat) => unlinkat(parent, name, AtFlags::empty())
                .inspect(|()| self.bytes += counted_bytes(&stat)),
            Err(error) => Err(error),
        };
        self.keep_error(removed);
    }

    fn remove_contents(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        top: Option<BorrowedFd<'_>>,
        depth: usize,
    ) {
        let listed = open_to_empty(parent, name, stat).and_then(|directory| {
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
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr, stat: &Stat, top: BorrowedFd<'_>) {
        let number = NEXT_DEEP.fetch_add(1, Ordering::Relaxed);
        let new = CString::new(format!("floe-deep-{}-{number}", std::process::id()));
        let new = new.unwrap_or_default();
        // Moving a directory changes it, because it has an entry for its parent.
        let moved = open_to_empty(parent, name, stat)
            .and_then(|_| renameat_with(parent, name, top, &new, RenameFlags::NOREPLACE));
        if moved.is_ok() {
            self.deep.push(new);
        }
        self.keep_error(moved);
    }

    fn keep_error(&mut self, result: Result<(), Errno>) {
        if let Err(error) = result
            && error != Errno::NOENT
        {
            self.first_error.get_or_insert(error);
        }
    }
}

/// Opens a directory whose entries this user will remove.
fn open_to_empty(parent: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(stat.st_mode);
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
fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
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
fn counted_bytes(stat: &Stat) -> u64 {
    match stat.st_nlink {
        0..=2 => u64::try_from(stat.st_size).unwrap_or(0),
        _ => 0,
    }
}

/// Returns the sum of the sizes of the files of a tree, in bytes. Files that cannot be examined
/// count as empty.
pub(crate) fn tree_bytes(path: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut todo = vec![path.to_path_buf()];
    while let Some(path) = todo.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let entries = list_directory(&path).into_iter().flatten().flatten();
            todo.extend(entries.map(|entry| entry.path().to_owned()));
        } else {
            bytes = bytes.saturating_add(metadata.len());
        }
    }
    bytes
}

/// Removes a tree, sealed or not, if it exists. Other processes may remove it at the same time.
///
/// Errors: those of the system. Other files of the tree are removed nevertheless.
pub fn remove_tree(path: &Path) -> Result<(), StoreError> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
    let removed = name.and_then(|name| remove_and_count(CWD, &name).map_err(|it| it.errno.into()));
    removed.map(drop).io_context("remove", path)
}

/// Each level needs a descriptor, of which a process may have a thousand, and several workers
/// remove trees.
const DEPTH_MAX: usize = 50;

/// Distinguishes the names of moved directories.
static NEXT_DEEP: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
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
