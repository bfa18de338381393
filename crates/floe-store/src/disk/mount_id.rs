//! Finds out whether a file system is mounted at a place inside a tree.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statat, statx};
use rustix::io::Errno;

use super::list_directory::list_directory;
use crate::error::{IoContext as _, StoreError};

/// The mount that a file or directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountId {
    /// The number of the mount.
    Mount(u64),
    /// The number of the device. Linux before 5.8 tells no number of the mount.
    Device(u64),
}

/// The properties of a file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Examined {
    /// The type and the permissions.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// The number of hard links. Their type in `stat` depends on the architecture.
    pub(crate) links: usize,
    /// The mount. `None` for a file whose device alone is known: in an overlay, files have other
    /// devices than their directory.
    pub(crate) mount: Option<MountId>,
}

impl Examined {
    pub(crate) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode).is_dir()
    }

    /// Whether the file or directory is not on the mount of its parent.
    pub(crate) fn is_mounted_on(&self, parent: MountId) -> bool {
        self.mount.is_some_and(|mount| mount != parent)
    }
}

/// Examines a file or directory with one system call. Follows no symbolic link.
pub(crate) fn examine(parent: impl AsFd, name: &CStr) -> Result<Examined, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    match statx(&parent, name, flags, mask) {
        // Some sandboxes do not know the system call.
        Err(Errno::NOSYS | Errno::PERM) => {}
        found => return found.map(|found| describe(&found)),
    }
    let found = statat(&parent, name, flags)?;
    let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
    Ok(Examined {
        mode: found.st_mode,
        size: u64::try_from(found.st_size).unwrap_or(0),
        links: usize::try_from(found.st_nlink).unwrap_or(usize::MAX),
        mount: is_directory.then_some(MountId::Device(found.st_dev)),
    })
}

fn describe(found: &Statx) -> Examined {
    let mode = u32::from(found.stx_mode);
    let has_id = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let is_directory = FileType::from_raw_mode(mode).is_dir();
    Examined {
        mode,
        size: found.stx_size,
        links: usize::try_from(found.stx_nlink).unwrap_or(usize::MAX),
        mount: if has_id {
            Some(MountId::Mount(found.stx_mnt_id))
        } else {
            is_directory.then_some(MountId::Device(device))
        },
    }
}

/// Returns the mount of a directory that is open, or of the directory that has the file `name`, if
/// `name` is a path.
pub(crate) fn mount_of_parent(parent: impl AsFd, name: &CStr) -> Result<Option<MountId>, Errno> {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let found = match path.parent() {
        Some(directory) if directory != Path::new("") => {
            let directory = directory.as_os_str().as_bytes();
            // The bytes come from a C string.
            let directory = CString::new(directory).map_err(|_| Errno::INVAL)?;
            examine(parent, &directory)?
        }
        _ => examine(parent, c"")?,
    };
    Ok(found.mount)
}

/// Checks that no other file system is mounted at a place.
///
/// Errors: [`mounted_error`], and those of the system.
pub(crate) fn check_same_mount(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    let mount = mount_of_parent(&parent, name)?;
    match mount {
        Some(mount) if examine(&parent, name)?.is_mounted_on(mount) => {
            Err(mounted_error(&place_of(&parent, name)))
        }
        _ => Ok(()),
    }
}

/// Checks that no other file system is mounted at `path` or in its tree, before the tree is moved:
/// a rename would move the mount too. Files that cannot be examined, such as those of a damaged
/// directory, are left out.
///
/// Errors: [`mounted_error`] about the first mount.
pub(crate) fn check_no_mounts(path: &Path) -> Result<(), StoreError> {
    let examine = |path: &Path| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)?;
        Ok::<_, io::Error>(examine(CWD, &name)?)
    };
    let parent = path.parent().map(examine);
    let Some(mount) = parent.and_then(Result::ok).and_then(|found| found.mount) else {
        return Ok(());
    };
    let mut todo = vec![path.to_path_buf()];
    while let Some(path) = todo.pop() {
        let is_mounted = match examine(&path) {
            Ok(found) if found.is_mounted_on(mount) => true,
            Ok(found) => {
                let entries = found.is_directory().then(|| list_directory(&path).ok());
                let entries = entries.flatten().into_iter().flatten().flatten();
                todo.extend(entries.map(|entry| entry.path().to_owned()));
                false
            }
            Err(error) => is_hidden_mount(&error),
        };
        if is_mounted {
            return Err(mounted_error(&path)).io_context("move", &path);
        }
    }
    Ok(())
}

/// Whether a file that cannot be examined is the place of a mount: of a FUSE file system that only
/// its user may access, or whose server has died.
fn is_hidden_mount(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::PermissionDenied => rustix::process::geteuid().is_root(),
        kind => kind == io::ErrorKind::NotConnected,
    }
}

/// The error about a place where another file system is mounted.
pub(crate) fn mounted_error(place: &Path) -> io::Error {
    let place = place.display();
    let text = format!("another file system is mounted at {place}; try umount {place}");
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Returns the path of a file in an open directory, for messages.
pub(crate) fn place_of(parent: impl AsFd, name: &CStr) -> PathBuf {
    let link = format!("/proc/self/fd/{}", parent.as_fd().as_raw_fd());
    let directory = fs::read_link(link).unwrap_or_default();
    directory.join(OsStr::from_bytes(name.to_bytes()))
}
