//! Copies a tree from another place on this machine by clones or hard links, without reading its
//! bytes.
//!
//! 1. Names, link targets and executable bits come from the original. Directories, symbolic links
//!    and clones are new, with the modes and times of a store.
//! 2. A file is hard-linked only if all its attributes are as a store would have them.
//! 3. A file that cannot be linked is cloned or copied. If the file system supports neither links
//!    nor clones between the two places, nothing is created, and the caller copies the tree.
//!
//! Not guaranteed: anything about the contents. The caller must hash the new tree, because the
//! original may have changed since it was hashed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use floe_format::nar::read::NarEvent;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, flistxattr, fstat, ioctl_ficlone, openat, statat,
};
use rustix::io::{Errno, pread};
use rustix::process::{getegid, geteuid};

use super::dump::{CHUNK_LEN, as_path, check_depth, is_executable, open_directory, read_target};
use super::links::FileHasher;
use super::temporary_tree::TemporaryTree;
use super::unpack::{TreeBuilder, TreeWriter};
use crate::disk::WrittenFile;
use crate::error::{IoContext, StoreError};

/// The way to reuse the files of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseMethod {
    /// Clones, which share disk blocks with the originals until one of them is written.
    Reflink,
    /// Hard links to the originals.
    HardLink,
}

impl TreeWriter {
    /// Creates the tree from the tree at `source` instead of a NAR. Returns `None` if the two
    /// places cannot share files; the writer is then empty, and the caller can copy the tree.
    ///
    /// Errors: [`StoreError::FileChanged`] if the files have more than `nar_size` bytes or change
    /// meanwhile, those of [`dump_path`](super::dump::dump_path), and those of the system.
    pub fn reuse(
        self,
        source: &Path,
        nar_size: u64,
        method: ReuseMethod,
    ) -> Result<Option<TemporaryTree>, StoreError> {
        let mut cloner = TreeCloner {
            builder: self.builder,
            method,
            bytes_left: nar_size,
            path: source.into(),
        };
        let stat = statat(CWD, source, AtFlags::SYMLINK_NOFOLLOW).io_context("examine", source)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let name = source.as_os_str().as_encoded_bytes();
        let can_share = cloner.node(CWD, name, kind, 0)?;
        // Otherwise the whole builder is dropped, which closes its file before it removes the tree.
        Ok(if can_share {
            Some(cloner.builder.tree)
        } else {
            None
        })
    }
}

struct TreeCloner {
    builder: TreeBuilder,
    method: ReuseMethod,
    /// The number of bytes that the contents may still have.
    bytes_left: u64,
    /// The current position, for error messages.
    path: PathBuf,
}

/// The methods return `false` if the two places cannot share files.
impl TreeCloner {
    fn node(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        kind: FileType,
        depth: usize,
    ) -> Result<bool, StoreError> {
        match kind {
            FileType::RegularFile => self.file(parent, name),
            FileType::Directory => self.directory(parent, name, depth),
            FileType::Symlink => {
                let target = read_target(parent, name, &self.path)?;
                let target = target.as_bytes();
                self.builder.apply(NarEvent::Symlink { target })?;
                Ok(true)
            }
            _ => Err(StoreError::UnsupportedFile(self.path.clone())),
        }
    }

    fn directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        depth: usize,
    ) -> Result<bool, StoreError> {
        check_depth(depth, &self.path)?;
        let (directory, entries) = open_directory(parent, name, &self.path)?;
        self.builder.apply(NarEvent::Directory)?;
        for entry in entries {
            let name = &entry.name;
            self.path.push(as_path(name));
            let kind = entry.kind(directory.as_fd(), &self.path)?;
            self.builder.apply(NarEvent::Entry { name })?;
            if !self.node(directory.as_fd(), name, kind, depth + 1)? {
                return Ok(false);
            }
            self.path.pop();
        }
        self.builder.apply(NarEvent::EndDirectory)?;
        Ok(true)
    }

    fn file(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<bool, StoreError> {
        // Without `NONBLOCK`, opening a named pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::empty()).io_context("open", &self.path)?;
        let stat = fstat(&file).io_context("examine", &self.path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.changed());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let left = self.bytes_left.checked_sub(size);
        self.bytes_left = left.ok_or_else(|| self.changed())?;
        if self.method == ReuseMethod::HardLink && is_canonical_file(&file, &stat) {
            match self.builder.link_existing(parent, name) {
                Ok(()) => return self.check_link(&file, &stat, size),
                Err(Errno::XDEV) => return Ok(false),
                // The file has too many links, or belongs to another user. A clone or a copy
                // replaces the link.
                Err(Errno::MLINK | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error).io_context("link", &self.path),
            }
        }
        self.clone_or_copy(&file, is_executable(&stat), size)
    }

    /// Checks that the linked file is the one that was examined.
    fn check_link(&mut self, file: &OwnedFd, stat: &Stat, size: u64) -> Result<bool, StoreError> {
        let linked = self.builder.stat_last().io_context("examine", &self.path)?;
        if (linked.st_dev, linked.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(self.changed());
        }
        if self.builder.tree.links.is_some() {
            let mut hasher = FileHasher::new(is_executable(stat), size);
            self.read(file, size, |_, piece| {
                hasher.update(piece);
                Ok(())
            })?;
            self.builder.optimise_entry(&hasher.finish())?;
        }
        Ok(true)
    }

    fn clone_or_copy(
        &mut self,
        file: &OwnedFd,
        executable: bool,
        size: u64,
    ) -> Result<bool, StoreError> {
        self.builder.apply(NarEvent::File { executable, size })?;
        let Some(written) = self.builder.file.take() else {
            return Err(self.changed());
        };
        let cloned = ioctl_ficlone(&written, file);
        let hashed = match cloned {
            Ok(()) => self.hash_clone(&written, size),
            Err(_) => Ok(()),
        };
        self.builder.file.put(written);
        hashed?;
        match cloned {
            Ok(()) => {}
            Err(error) if !cannot_clone(error) => {
                return Err(error).io_context("clone", &self.path);
            }
            Err(_) if self.method == ReuseMethod::Reflink => return Ok(false),
            Err(_) => {
                self.read(file, size, |cloner, piece| {
                    cloner.builder.apply(NarEvent::Data(piece))
                })?;
            }
        }
        self.builder.apply(NarEvent::EndFile)?;
        Ok(true)
    }

    /// Hashes a clone, if equal files are linked.
    fn hash_clone(&mut self, clone: &WrittenFile, size: u64) -> Result<(), StoreError> {
        let Some(mut hasher) = self.builder.hasher.take() else {
            return Ok(());
        };
        self.read(clone, size, |_, piece| {
            hasher.update(piece);
            Ok(())
        })?;
        self.builder.hasher = Some(hasher);
        Ok(())
    }

    /// Reads a file from start to end and ignores its file position.
    fn read(
        &mut self,
        file: &impl AsFd,
        size: u64,
        mut each: impl FnMut(&mut TreeCloner, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut buffer = vec![0; CHUNK_LEN];
        let mut offset = 0;
        loop {
            match pread(file, &mut buffer, offset) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    offset += read as u64;
                    if offset > size {
                        return Err(self.changed());
                    }
                    each(self, &buffer[..read])?;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).io_context("read", &self.path),
            }
        }
    }

    fn changed(&self) -> StoreError {
        StoreError::FileChanged(self.path.clone())
    }
}

/// Whether a file has the metadata of a store file. A hard link shares all metadata with the
/// original.
fn is_canonical_file(file: &OwnedFd, stat: &Stat) -> bool {
    let owner = (geteuid().as_raw(), getegid().as_raw());
    matches!(stat.st_mode & 0o7777, 0o444 | 0o555)
        && (stat.st_mtime, stat.st_mtime_nsec) == (1, 0)
        && (stat.st_uid, stat.st_gid) == owner
        && has_no_attributes(file)
}

/// Whether a file has no extended attributes except those that Nix ignores.
fn has_no_attributes(file: &OwnedFd) -> bool {
    let mut names = [0_u8; ATTRIBUTES_LEN];
    match flistxattr(file, &mut names) {
        Ok(len) => names[..len]
            .split(|byte| *byte == 0)
            .all(|name| name.is_empty() || IGNORED_ATTRIBUTES.contains(&name)),
        Err(error) => error == Errno::OPNOTSUPP,
    }
}

/// Whether the file system has no clones, or none between these two places.
fn cannot_clone(error: Errno) -> bool {
    matches!(
        error,
        Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::PERM
    )
}

/// Nix's setting `ignored-acls`.
const IGNORED_ATTRIBUTES: [&[u8]; 3] = [b"security.csm", b"security.selinux", b"system.nfs4_acl"];

/// Far more than the ignored names need. A file with longer lists has other attributes.
const ATTRIBUTES_LEN: usize = 256;
