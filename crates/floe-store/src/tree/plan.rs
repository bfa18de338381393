//! The plan of a NAR: all bytes except the contents of files.
//!
//! 1. One walk over the tree writes the framing and records the place of each file's contents.
//! 2. The size of the NAR is then known. A server can send any range of it without reading the
//!    bytes before the range, file by file from the page cache.
//!
//! A plan holds names and framing, about 300 bytes a file, and no descriptors.
//!
//! A packed plan also has the contents of all small files, in a memory file between their framing.
//! A server that sends a tree often then avoids opening thousands of files, and still sends from
//! the page cache without a copy.

use std::cmp::Ordering;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat,
};
use rustix::io::Errno;

use super::dump::{as_path, is_executable};
use crate::error::{IoContext, StoreError};

mod build;
mod pack;

/// The NAR of a tree, without the contents of the files.
#[derive(Debug)]
pub struct NarPlan {
    /// The bytes of the NAR that do not come from the files of the plan, concatenated. Empty if
    /// they are in `packed`.
    framing: Vec<u8>,
    framing_len: u64,
    packed: Option<OwnedFd>,
    files: Vec<PlannedFile>,
    names: Vec<u8>,
    nar_size: u64,
}

#[derive(Debug)]
struct PlannedFile {
    /// The offset of the contents in the NAR.
    offset: u64,
    size: u64,
    /// The total framing before the contents, in bytes.
    framing: u64,
    /// The end of the path in `names`. It begins at the end of the previous path.
    names: usize,
    executable: bool,
}

/// The bytes at some offset of a NAR, up to the end of one piece.
#[derive(Debug)]
pub enum PlanPart<'plan> {
    /// Framing, as bytes.
    Framing(&'plan [u8]),
    /// A range of the packed file.
    Packed {
        /// The packed file.
        file: BorrowedFd<'plan>,
        /// The start of the range.
        offset: u64,
        /// The length of the range; never zero.
        len: u64,
    },
    /// A range of one of the files.
    Contents {
        /// The number of the file, for [`NarPlan::open`].
        file: usize,
        /// The start of the range.
        offset: u64,
        /// The length up to the end of the file; never zero.
        len: u64,
    },
}

impl NarPlan {
    /// The size of the NAR, in bytes.
    pub fn nar_size(&self) -> u64 {
        self.nar_size
    }

    /// The memory of the plan in bytes, without the packed file.
    pub fn memory(&self) -> usize {
        let files = self.files.len() * size_of::<PlannedFile>();
        size_of::<NarPlan>() + self.framing.len() + self.names.len() + files
    }

    /// Returns the part at an offset, or `None` at the end of the NAR.
    pub fn part(&self, offset: u64) -> Option<PlanPart<'_>> {
        if offset >= self.nar_size {
            return None;
        }
        // The last file that begins at the offset or before it. Empty files contain no byte.
        let after = self.files.partition_point(|file| file.offset <= offset);
        let before = after.checked_sub(1).and_then(|index| self.files.get(index));
        let (framing_start, nar_start) = match before {
            Some(file) if offset < file.offset + file.size => {
                return Some(PlanPart::Contents {
                    file: after - 1,
                    offset: offset - file.offset,
                    len: file.offset + file.size - offset,
                });
            }
            Some(file) => (file.framing, file.offset + file.size),
            None => (0, 0),
        };
        let next = self.files.get(after);
        let framing_end = next.map_or(self.framing_len, |next| next.framing);
        let start = framing_start + (offset - nar_start);
        match &self.packed {
            Some(file) => Some(PlanPart::Packed {
                file: file.as_fd(),
                offset: start,
                len: framing_end - start,
            }),
            // The framing is in memory, so its length fits into `usize`.
            None => {
                let bytes = self.framing.get(start as usize..framing_end as usize)?;
                Some(PlanPart::Framing(bytes))
            }
        }
    }

    /// Whether the contents of small files are packed.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Opens a file of the tree, whose root is `root` (see [`open_tree_root`]).
    ///
    /// Errors: those of the system, and [`StoreError::FileChanged`] if the file differs from the
    /// planned one: another size, another executable bit, or a symlink on the way.
    pub fn open(&self, root: &mut TreeRoot, file: usize) -> Result<OwnedFd, StoreError> {
        let (planned, name) = self.file(file).ok_or_else(|| root.changed(b""))?;
        let opened = root.open(name)?;
        let stat = fstat(&opened).io_context("examine", root.join(name))?;
        let is_same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size) == Ok(planned.size)
            && is_executable(&stat) == planned.executable;
        if is_same {
            Ok(opened)
        } else {
            Err(root.changed(name))
        }
    }

    /// Appends the contents of a whole file to a buffer. For small files: this needs three system
    /// calls, while [`NarPlan::open`] and a read need four.
    ///
    /// Errors: those of the system, and [`StoreError::FileChanged`] if the size differs from the
    /// planned one. The buffer is then unchanged.
    pub fn read(
        &self,
        root: &mut TreeRoot,
        file: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let (planned, name) = self.file(file).ok_or_else(|| root.changed(b""))?;
        let opened = root.open(name)?;
        let before = buffer.len();
        let size = usize::try_from(planned.size).map_err(|_| root.changed(name))?;
        // One more byte than planned shows whether the file has grown. The reserved bytes are not
        // initialised, because that would take as long as the read.
        buffer.reserve(size + 1);
        let result = loop {
            match rustix::io::read(&opened, spare_capacity(buffer)) {
                Ok(0) if buffer.len() == before + size => break Ok(()),
                Ok(0) => break Err(root.changed(name)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => break Err(error).io_context("read", root.join(name)),
            }
            // A short read of a regular file means the end of the file.
            match buffer.len().cmp(&(before + size)) {
                Ordering::Less => {}
                Ordering::Equal => break Ok(()),
                Ordering::Greater => break Err(root.changed(name)),
            }
        };
        if result.is_err() {
            buffer.truncate(before);
        }
        result
    }

    fn file(&self, index: usize) -> Option<(&PlannedFile, &[u8])> {
        let file = self.files.get(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => self.files.get(before)?.names,
            None => 0,
        };
        Some((file, self.names.get(start..file.names)?))
    }
}

/// The root of a tree, open while its files are opened.
#[derive(Debug)]
pub struct TreeRoot {
    /// `None` if the root is a file.
    directory: Option<OwnedFd>,
    path: PathBuf,
    /// The directory of the last opened file, relative to the root.
    last: Vec<u8>,
    /// The open directory, present after a second file in it was opened.
    last_opened: Option<OwnedFd>,
}

/// Opens the root of the tree at `path`. An error means that the tree no longer exists.
pub fn open_tree_root(path: &Path) -> Result<TreeRoot, StoreError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(CWD, path, flags, Mode::empty()) {
        Ok(directory) => Some(directory),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).io_context("examine", path)?;
            None
        }
        Err(error) => return Err(error).io_context("open", path),
    };
    Ok(TreeRoot {
        directory,
        path: path.into(),
        last: Vec::new(),
        last_opened: None,
    })
}

/// Opens a file below a directory and follows no symbolic link.
fn open_below(directory: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(directory, name, flags, Mode::empty(), resolve) {
        // Some sandboxes and emulators do not support openat2.
        Err(Errno::NOSYS | Errno::PERM) => open_each(directory, name, flags),
        opened => opened,
    }
}

/// Does the same with one system call for each part of the name.
fn open_each(directory: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut parts = name.split(|&byte| byte == b'/');
    let last = parts.next_back().unwrap_or(name);
    let mut above: Option<OwnedFd> = None;
    for part in parts {
        let parent = above.as_ref().unwrap_or(directory);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        above = Some(openat(parent, part, flags, Mode::empty())?);
    }
    let parent = above.as_ref().unwrap_or(directory);
    openat(parent, last, flags | OFlags::NOFOLLOW, Mode::empty())
}

impl TreeRoot {
    /// Opens a file by its path below the root. No part of the path may be a symbolic link.
    ///
    /// Files come in the order of the tree, so the next file is often in the same directory. This
    /// function opens each directory once for all of them.
    fn open(&mut self, name: &[u8]) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open_in = |directory: BorrowedFd<'_>, name: &[u8]| {
            openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
        };
        let slash = name.iter().rposition(|&byte| byte == b'/');
        let opened = match (&self.directory, slash) {
            (None, _) => open_in(CWD, self.path.as_os_str().as_encoded_bytes()),
            (Some(directory), None) => open_in(directory.as_fd(), name),
            (Some(directory), Some(slash)) if self.last != name[..slash] => {
                self.last = name[..slash].to_vec();
                self.last_opened = None;
                open_below(directory, name, flags)
            }
            (Some(directory), Some(slash)) => {
                if self.last_opened.is_none() {
                    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    self.last_opened = open_below(directory, &self.last, flags).ok();
                }
                match &self.last_opened {
                    Some(parent) => open_in(parent.as_fd(), &name[slash + 1..]),
                    None => open_below(directory, name, flags),
                }
            }
        };
        opened.io_context("open", self.join(name))
    }

    fn join(&self, name: &[u8]) -> PathBuf {
        match name {
            b"" => self.path.clone(),
            name => self.path.join(as_path(name)),
        }
    }

    fn changed(&self, name: &[u8]) -> StoreError {
        StoreError::FileChanged(self.join(name))
    }
}

#[cfg(test)]
mod tests;
