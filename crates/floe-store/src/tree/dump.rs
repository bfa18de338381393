//! Writes the NAR of a tree on disk, in chunks.
//!
//! 1. The entries of a directory are sorted by their bytes.
//! 2. Framing and small files gather in one buffer. A full buffer goes to the sink.
//! 3. The contents of a large file are read in pieces directly into that buffer.
//!
//! Not guaranteed: a consistent view of a tree that changes meanwhile. If a file changes its size,
//! the dump fails. The hash of the NAR reveals other changes.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use floe_format::Hash;
use floe_format::nar::DEPTH_MAX;
use floe_format::nar::layout::Node;
use floe_format::nar::write;
use floe_hash::hash_pool::Stream;
use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat,
};

use crate::error::{IoContext, StoreError};

/// Writes the NAR of the tree at `path` to `sink`, in chunks of about [`CHUNK_LEN`] bytes.
///
/// Errors: those of the system, of the sink, and [`StoreError::UnsupportedFile`],
/// [`StoreError::TooDeep`], [`StoreError::FileChanged`].
pub fn dump_path<E: From<StoreError>>(
    path: &Path,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut dumper = Dumper {
        sink,
        buffer: Vec::with_capacity(CHUNK_LEN),
        path: path.into(),
    };
    write::begin(&mut dumper.buffer);
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).io_context("examine", path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    dumper.node(CWD, path.as_os_str().as_encoded_bytes(), kind, 0)?;
    dumper.flush()
}

/// Returns hash and size of the NAR of a tree.
pub(crate) fn hash_tree(path: &Path, mut hasher: Stream) -> Result<(Hash, u64), StoreError> {
    let mut size = 0;
    dump_path(path, &mut |chunk| {
        hasher.update(chunk);
        size += chunk.len() as u64;
        Ok::<_, StoreError>(())
    })?;
    Ok((Hash::sha256(hasher.finish()), size))
}

/// Writes the NAR of a node of a directory, as [`dump_path`] does. `path` is its place, for error
/// messages. `buffer` is empty, and keeps its memory for the next call.
pub(super) fn dump_node<E: From<StoreError>>(
    parent: BorrowedFd<'_>,
    name: &[u8],
    kind: FileType,
    path: &Path,
    buffer: &mut Vec<u8>,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    buffer.clear();
    buffer.reserve(CHUNK_LEN);
    let mut dumper = Dumper {
        sink,
        buffer: std::mem::take(buffer),
        path: path.into(),
    };
    write::begin(&mut dumper.buffer);
    dumper.node(parent, name, kind, 0)?;
    dumper.flush()?;
    *buffer = dumper.buffer;
    Ok(())
}

/// Returns the listing of the tree at `path`: kinds, names and sizes, without contents.
pub fn list_tree(path: &Path) -> Result<Node, StoreError> {
    let name = path.as_os_str().as_encoded_bytes();
    list_node(&mut PathBuf::from(path), CWD, name, 0)
}

struct Dumper<'s, E> {
    sink: &'s mut dyn FnMut(&[u8]) -> Result<(), E>,
    buffer: Vec<u8>,
    /// The current position, for error messages.
    path: PathBuf,
}

impl<E: From<StoreError>> Dumper<'_, E> {
    fn node(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        kind: FileType,
        depth: usize,
    ) -> Result<(), E> {
        match kind {
            FileType::RegularFile => self.file(parent, name),
            FileType::Directory => self.directory(parent, name, depth),
            FileType::Symlink => {
                let target = read_target(parent, name, &self.path)?;
                write::symlink(&mut self.buffer, target.as_bytes());
                Ok(())
            }
            _ => Err(StoreError::UnsupportedFile(self.path.clone()).into()),
        }
    }

    fn directory(&mut self, parent: BorrowedFd<'_>, name: &[u8], depth: usize) -> Result<(), E> {
        check_depth(depth, &self.path)?;
        let (directory, entries) = open_directory(parent, name, &self.path)?;
        write::begin_directory(&mut self.buffer);
        for entry in entries {
            let entry_name = entry.name.as_slice();
            self.path.push(as_path(entry_name));
            let kind = entry.kind(directory.as_fd(), &self.path)?;
            write::begin_entry(&mut self.buffer, entry_name);
            self.node(directory.as_fd(), entry_name, kind, depth + 1)?;
            write::end_entry(&mut self.buffer);
            self.path.pop();
            if self.buffer.len() >= CHUNK_LEN / 2 {
                self.flush()?;
            }
        }
        write::end_directory(&mut self.buffer);
        Ok(())
    }

    fn file(&mut self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), E> {
        // Another process may have put a named pipe in the place of the file, which must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::empty()).io_context("open", &self.path)?;
        let stat = fstat(&file).io_context("examine", &self.path)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        write::begin_file(&mut self.buffer, is_executable(&stat), size);
        let mut left = size;
        while left > 0 {
            // The flush makes room for the rest of a small file, or for a large piece of a large
            // one.
            if self.buffer.capacity() - self.buffer.len() < left.min(PIECE_LEN_MIN) as usize {
                self.flush()?;
            }
            let read = self.read_piece(&file, left)?;
            if read == 0 {
                return Err(StoreError::FileChanged(self.path.clone()).into());
            }
            left -= read;
        }
        write::end_file(&mut self.buffer, size);
        Ok(())
    }

    /// Reads up to `left` bytes onto the end of the buffer, without growing it.
    fn read_piece(&mut self, file: &OwnedFd, left: u64) -> Result<u64, StoreError> {
        let before = self.buffer.len();
        loop {
            match rustix::io::read(file, spare_capacity(&mut self.buffer)) {
                // The file has grown since it was opened.
                Ok(read) if read as u64 > left => {
                    self.buffer.truncate(before);
                    return Err(StoreError::FileChanged(self.path.clone()));
                }
                Ok(read) => return Ok(read as u64),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).io_context("read", &self.path),
            }
        }
    }

    fn flush(&mut self) -> Result<(), E> {
        (self.sink)(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

fn list_node(
    path: &mut PathBuf,
    parent: BorrowedFd<'_>,
    name: &[u8],
    depth: usize,
) -> Result<Node, StoreError> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).io_context("examine", &path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Node::File {
            executable: is_executable(&stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
        }),
        FileType::Symlink => {
            let target = read_target(parent, name, path)?.into_bytes();
            Ok(Node::Symlink { target })
        }
        FileType::Directory => {
            check_depth(depth, path)?;
            let (directory, listed) = open_directory(parent, name, path)?;
            let mut entries = std::collections::BTreeMap::new();
            for entry in listed {
                path.push(as_path(&entry.name));
                let node = list_node(path, directory.as_fd(), &entry.name, depth + 1)?;
                path.pop();
                entries.insert(entry.name, node);
            }
            Ok(Node::Directory { entries })
        }
        _ => Err(StoreError::UnsupportedFile(path.clone())),
    }
}

pub(super) struct ListedEntry {
    pub(super) name: Vec<u8>,
    pub(super) kind: FileType,
    pub(super) inode: u64,
}

impl ListedEntry {
    /// Some file systems do not report the kind in a directory listing.
    pub(super) fn kind(
        &self,
        directory: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<FileType, StoreError> {
        if self.kind != FileType::Unknown {
            return Ok(self.kind);
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = statat(directory, &self.name, flags).io_context("examine", path)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }
}

pub(super) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o100 != 0
}

/// Reads the target of a symbolic link.
pub(super) fn read_target(
    parent: impl AsFd,
    name: &[u8],
    path: &Path,
) -> Result<CString, StoreError> {
    readlinkat(parent, name, Vec::new()).io_context("read the link", path)
}

/// Opens a directory and lists it in the order of NARs.
pub(super) fn open_directory(
    parent: BorrowedFd<'_>,
    name: &[u8],
    path: &Path,
) -> Result<(OwnedFd, Vec<ListedEntry>), StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(parent, name, flags, Mode::empty()).io_context("open", path)?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&directory).io_context("list", path)? {
        let entry = entry.io_context("list", path)?;
        let name = CStr::to_bytes(entry.file_name());
        if name != b"." && name != b".." {
            entries.push(ListedEntry {
                name: name.to_vec(),
                kind: entry.file_type(),
                inode: entry.ino(),
            });
        }
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok((directory, entries))
}

pub(super) fn check_depth(depth: usize, path: &Path) -> Result<(), StoreError> {
    if depth >= DEPTH_MAX {
        return Err(StoreError::TooDeep(path.to_path_buf()));
    }
    Ok(())
}

pub(super) fn as_path(name: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(name))
}

/// A chunk stays in the second-level cache between reading, hashing and writing.
pub const CHUNK_LEN: usize = 256 * 1024;

/// Reading a large file in smaller pieces than this costs system calls.
const PIECE_LEN_MIN: u64 = 64 * 1024;
