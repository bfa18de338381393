//! A tree on disk → a plan of its NAR: all of it but the contents of files.
//!
//! 1. one walk writes the framing and remembers where the contents of each file belong;
//! 2. the size of the NAR is known from then on, and any range of it can be sent without what
//!    stands before, file by file, from the disk's own cache.
//!
//! A plan holds names and framing, about 300 bytes a file, and no descriptors.
//!
//! A packed plan has in addition the contents of all small files, between their framing, in a
//! file that exists in memory only. What is sent again and again then costs no opening of
//! thousands of files, and still goes to the socket without a copy.

use std::cmp::Ordering;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat,
};
use rustix::io::Errno;

use super::dump::as_path;
use crate::error::{IoContext, StoreError};

mod build;
mod pack;

/// The NAR of a tree, but for the contents of its files.
#[derive(Debug)]
pub struct NarPlan {
    framing: Framing,
    files: Vec<PlannedFile>,
    names: Vec<u8>,
    nar_size: u64,
}

/// All of the NAR that does not come from the files of the plan, end to end.
#[derive(Debug)]
enum Framing {
    Memory(Vec<u8>),
    Packed { file: OwnedFd, len: u64 },
}

#[derive(Debug)]
struct PlannedFile {
    /// Where in the NAR the contents begin.
    offset: u64,
    size: u64,
    /// How much framing stands before the contents, all in all.
    framing: u64,
    /// Where the path ends in the names; it begins where the one before ended.
    names: usize,
    executable: bool,
}

/// What stands at some offset of a NAR.
#[derive(Debug)]
pub enum PlanPart<'plan> {
    /// Framing: these very bytes.
    Framing(&'plan [u8]),
    /// Bytes of the packed file.
    Packed {
        /// The file.
        file: BorrowedFd<'plan>,
        /// Where in it.
        offset: u64,
        /// How much from there; never zero.
        len: u64,
    },
    /// Contents of the file with this number.
    Contents {
        /// The number of the file, for [`NarPlan::open`].
        file: usize,
        /// Where in the file.
        offset: u64,
        /// How much from there to the end of the file; never zero.
        len: u64,
    },
}

impl NarPlan {
    /// The size of the NAR, in bytes.
    pub fn nar_size(&self) -> u64 {
        self.nar_size
    }

    /// How many files there are.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// How much memory the plan takes, in bytes, the packed file not included.
    pub fn memory(&self) -> usize {
        size_of::<NarPlan>()
            + match &self.framing {
                Framing::Memory(bytes) => bytes.len(),
                Framing::Packed { .. } => 0,
            }
            + self.names.len()
            + self.files.len() * size_of::<PlannedFile>()
    }

    /// What stands at an offset, up to the end of that part; `None` at the end of the NAR.
    pub fn part(&self, offset: u64) -> Option<PlanPart<'_>> {
        if offset >= self.nar_size {
            return None;
        }
        // The last file whose contents begin at the offset or before; empty ones hold no byte.
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
        let framing_end = match self.files.get(after) {
            Some(next) => next.framing,
            None => self.framing_len(),
        };
        let start = framing_start + (offset - nar_start);
        match &self.framing {
            Framing::Packed { file, .. } => Some(PlanPart::Packed {
                file: file.as_fd(),
                offset: start,
                len: framing_end - start,
            }),
            // What is in memory has a length that fits.
            Framing::Memory(bytes) => {
                let bytes = bytes.get(start as usize..framing_end as usize)?;
                Some(PlanPart::Framing(bytes))
            }
        }
    }

    /// Whether the contents of small files are packed.
    pub fn is_packed(&self) -> bool {
        matches!(self.framing, Framing::Packed { .. })
    }

    fn framing_len(&self) -> u64 {
        match &self.framing {
            Framing::Memory(bytes) => bytes.len() as u64,
            Framing::Packed { len, .. } => *len,
        }
    }

    /// Opens a file of the tree, whose root is `root` (see [`open_tree_root`]).
    ///
    /// Errors: those of the system, and [`StoreError::FileChanged`] if the file differs from the
    /// planned one: another size, another executable bit, or a symlink on the way.
    pub fn open(&self, root: &mut TreeRoot, file: usize) -> Result<OwnedFd, StoreError> {
        let (planned, name) = self.file(file).ok_or_else(|| root.changed(b""))?;
        let opened = root.open(name)?;
        let stat = fstat(&opened).io_context("examining", root.join(name))?;
        let is_same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size) == Ok(planned.size)
            && (stat.st_mode & 0o100 != 0) == planned.executable;
        match is_same {
            true => Ok(opened),
            false => Err(root.changed(name)),
        }
    }

    /// Appends the contents of a whole file to a buffer. Meant for small ones: three calls of the
    /// system, where [`NarPlan::open`] and reading take four.
    ///
    /// Errors: those of the system, and [`StoreError::FileChanged`] if it has another size than it
    /// had. Then the buffer is as it was.
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
        // One byte more than it should have, to see that it has no more. Filling that with zeros
        // first would take as long as reading.
        buffer.reserve(size + 1);
        let result = loop {
            match rustix::io::read(&opened, spare_capacity(buffer)) {
                Ok(0) if buffer.len() == before + size => break Ok(()),
                Ok(0) => break Err(root.changed(name)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => break Err(error).io_context("reading", root.join(name)),
            }
            // The end is where it should be, unless the file has grown: a short read of a regular
            // file is its end.
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

/// The root of a tree, held open while files of it are opened.
#[derive(Debug)]
pub struct TreeRoot {
    /// `None` where the root itself is a file.
    directory: Option<OwnedFd>,
    path: PathBuf,
    /// The directory, below the root, of the file that was opened last.
    last: Vec<u8>,
    /// The same, opened, once a second file of it was asked for.
    last_opened: Option<OwnedFd>,
}

/// Opens the root of the tree at `path`. An error means that it is not there any more.
pub fn open_tree_root(path: &Path) -> Result<TreeRoot, StoreError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(CWD, path, flags, Mode::empty()) {
        Ok(directory) => Some(directory),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).io_context("examining", path)?;
            None
        }
        Err(error) => return Err(error).io_context("opening", path),
    };
    Ok(TreeRoot {
        directory,
        path: path.into(),
        last: Vec::new(),
        last_opened: None,
    })
}

/// Opens what lies below a directory, without following any symlink.
fn open_below(directory: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(directory, name, flags, Mode::empty(), resolve) {
        // Some sandboxes know no openat2; a directory that somebody has replaced by a symlink
        // then shows in the size of the file, if at all.
        Err(Errno::NOSYS | Errno::PERM) => {
            openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    }
}

impl TreeRoot {
    /// Opens a file by its path below the root; no part of the path may be a symlink.
    ///
    /// Files come in the order of the tree, so the directory of the last one is likely to be that
    /// of the next: it is opened once for all of them.
    fn open(&mut self, name: &[u8]) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let slash = name.iter().rposition(|&byte| byte == b'/');
        let opened = match (&self.directory, slash) {
            (None, _) => openat(CWD, &self.path, flags | OFlags::NOFOLLOW, Mode::empty()),
            (Some(directory), None) => {
                openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
            }
            (Some(directory), Some(slash)) => {
                let (parent, base) = name.split_at(slash);
                let base = base.get(1..).unwrap_or_default();
                if self.last != parent {
                    self.last = parent.to_vec();
                    self.last_opened = None;
                    open_below(directory, name, flags)
                } else {
                    if self.last_opened.is_none() {
                        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                        self.last_opened = open_below(directory, parent, flags).ok();
                    }
                    match &self.last_opened {
                        Some(parent) => {
                            openat(parent, base, flags | OFlags::NOFOLLOW, Mode::empty())
                        }
                        None => open_below(directory, name, flags),
                    }
                }
            }
        };
        opened.io_context("opening", self.join(name))
    }

    fn join(&self, name: &[u8]) -> PathBuf {
        match name {
            b"" => self.path.clone(),
            name => self.path.join(as_path(name)),
        }
    }

    fn changed(&self, name: &[u8]) -> StoreError {
        StoreError::FileChanged {
            path: self.join(name),
        }
    }
}

#[cfg(test)]
mod tests;
