//! Open directories, and names in them that other users of the machine may exchange.
//!
//! A check of a path and a later use of the same path may meet different files: the owner of a
//! directory on the way can exchange it in between, for example with a symbolic link. A
//! [`Directory`] is therefore opened once. Its names are then examined, created and removed
//! relative to its descriptor, and no symbolic link at a name is followed.
//!
//! A symbolic link on the way to the directory is followed only if root or this user owns it. Any
//! other owner could redirect it.

mod entry;
mod walk;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::{IoContext as _, StoreError};
pub(crate) use entry::Entry;
use walk::open;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    /// The path by which it was opened, for messages.
    path: PathBuf,
}

/// The mode of a directory that does not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewMode {
    /// The mode that the umask of the process allows.
    Umask,
    /// 0755, whatever the umask.
    Shared,
}

fn lost_target(target: &Path) -> io::Error {
    let target = target.display();
    io::Error::other(format!(
        "it is a symbolic link to {target}, which does not exist; try to mount its file system, \
         or remove the link if the directory is gone for good"
    ))
}

impl Directory {
    /// Opens a directory. `path` is absolute.
    ///
    /// Errors: [`StoreError::ForeignLink`], and those of the system.
    pub(crate) fn open(path: &Path) -> Result<Directory, StoreError> {
        open(path, None)
    }

    /// Opens a directory. Returns `None` if there is none. A symbolic link that leads to nothing is
    /// an error, because the directory may be on a file system that is not mounted.
    ///
    /// Errors: [`StoreError::ForeignLink`], and those of the system.
    pub(crate) fn open_if_exists(path: &Path) -> Result<Option<Directory>, StoreError> {
        match Directory::open(path) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                match fs::read_link(path) {
                    Ok(target) => Err(lost_target(&target)).io_context("open", path),
                    Err(_) => Ok(None),
                }
            }
            opened => opened.map(Some),
        }
    }

    /// Opens a directory, and creates it with its parents if it does not exist.
    ///
    /// Errors: those of [`Directory::open`].
    pub(crate) fn open_or_create(path: &Path, mode: NewMode) -> Result<Directory, StoreError> {
        open(path, Some(mode))
    }

    /// Opens the parent of a file. Returns it with the name of the file.
    ///
    /// Errors: those of [`Directory::open`].
    pub(crate) fn open_parent(path: &Path) -> Result<(Directory, &OsStr), StoreError> {
        let (parent, name) = split(path)?;
        Ok((Directory::open(parent)?, name))
    }

    /// Opens the parent of a file as [`Directory::open_or_create`] does.
    ///
    /// Errors: those of [`Directory::open`].
    pub(crate) fn create_parent(path: &Path) -> Result<(Directory, &OsStr), StoreError> {
        let (parent, name) = split(path)?;
        let parent = Directory::open_or_create(parent, NewMode::Umask)?;
        Ok((parent, name))
    }

    /// Opens a directory in this one. A symbolic link is not followed.
    pub(crate) fn subdirectory(&self, name: &OsStr) -> io::Result<Directory> {
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        Ok(Directory {
            descriptor: openat(&self.descriptor, name, flags, Mode::empty())?,
            path: self.path.join(name),
        })
    }

    /// The path by which the directory was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor, which serves for names only.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns a path of a name that leads through the descriptor. It is also short enough for the
    /// address of a socket, whose length is limited.
    pub(crate) fn place_by_descriptor(&self, name: &OsStr) -> PathBuf {
        descriptor_path(&self.descriptor).join(name)
    }

    /// Creates a directory in this one with mode 0755, whatever the umask. Returns `false` if there
    /// is a directory of this name, or a link to one.
    pub(crate) fn create_subdirectory(&self, name: &OsStr) -> io::Result<bool> {
        match create_at(&self.descriptor, name, NewMode::Shared) {
            Err(Errno::EXIST) => {
                let found = statat(&self.descriptor, name, AtFlags::empty());
                match found.map(|found| file_type(&found)) {
                    Ok(FileType::Directory) => Ok(false),
                    _ => Err(match self.entry(name).read_link() {
                        Ok(target) => lost_target(&target),
                        Err(_) => Errno::EXIST.into(),
                    }),
                }
            }
            created => Ok(created.map(|()| true)?),
        }
    }

    /// A name in the directory, whether it exists or not.
    pub(crate) fn entry<'a>(&'a self, name: &'a OsStr) -> Entry<'a> {
        Entry::new(self, name)
    }

    /// Lists the names in the directory with the types of their files.
    pub(crate) fn list(&self) -> io::Result<Vec<(OsString, FileType)>> {
        let mut names = Vec::new();
        for entry in self.entries()? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            // Some file systems tell no type here.
            let file_type = match entry.file_type() {
                FileType::Unknown => match self.entry(&name).stat() {
                    Ok(found) => file_type(&found),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
                known => known,
            };
            names.push((name, file_type));
        }
        Ok(names)
    }

    /// Whether the directory has no names. Reads only the first ones.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match self.entries()?.next() {
            Some(entry) => Ok(entry.map(|_| false)?),
            None => Ok(true),
        }
    }

    fn entries(&self) -> io::Result<impl Iterator<Item = Result<DirEntry, Errno>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(&self.descriptor, c".", flags, Mode::empty())?;
        let is_name = |entry: &DirEntry| !matches!(entry.file_name().to_bytes(), b"." | b"..");
        let entries = Dir::new(listed)?;
        Ok(entries.filter(move |entry| entry.as_ref().map_or(true, is_name)))
    }

    /// Whether this user may create and remove names here.
    pub(crate) fn may_change(&self) -> bool {
        use rustix::fs::{Access, accessat};
        let access = Access::WRITE_OK | Access::EXEC_OK;
        accessat(&self.descriptor, c".", access, AtFlags::empty()).is_ok()
    }

    /// The owner of the directory.
    pub(crate) fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.descriptor)?.st_uid)
    }
}

/// The type of an examined file.
pub(crate) fn file_type(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Whether files of this owner are as trustworthy as those of this user: they belong to this user
/// or to root. In a user namespace, root of the machine is the owner of `/`, whatever its number.
pub fn is_trusted_owner(owner: u32) -> bool {
    let root = || statat(CWD, c"/", AtFlags::empty()).map_or(0, |found| found.st_uid);
    owner == geteuid().as_raw() || owner == root()
}

fn split(path: &Path) -> Result<(&Path, &OsStr), StoreError> {
    let parts = path.parent().zip(path.file_name());
    let parts = parts.ok_or(io::Error::from(io::ErrorKind::IsADirectory));
    parts.io_context("use", path)
}

/// Creates a directory. Its mode is set through its descriptor, because its name may lead elsewhere
/// by then.
fn create_at(parent: &OwnedFd, name: &OsStr, mode: NewMode) -> Result<(), Errno> {
    mkdirat(parent, name, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
    if mode == NewMode::Shared {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = openat(parent, name, flags, Mode::empty())?;
        fchmod(created, Mode::from_raw_mode(0o755))?;
    }
    Ok(())
}

fn descriptor_path(descriptor: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn read_link_at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<PathBuf> {
    let target = readlinkat(directory, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

/// A descriptor for names only. It needs no permission to list the directory.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests;
