//! Links the files of an existing tree with equal files of the store, as `nix-store --optimise`
//! does (optimise-store.cc).
//!
//! The tree belongs to a valid path, so other processes may read it at any time. Each file changes
//! by one rename, and its contents and its mode stay the same. A kill in between leaves at most a
//! directory with another mode or time, which no hash contains, and which the next run corrects.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::Hash;
use floe_hash::hash_pool::Worker;
use rustix::fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, statat};
use rustix::process::geteuid;

use super::dump::{as_path, check_depth, dump_node, open_directory};
use super::links::{LinkCandidate, TreeLinks};
use super::unpack::{is_sealed_directory, seal_directory};
use crate::disk::mount_id::check_same_mount;
use crate::error::{IoContext as _, StoreError};

/// Links the files of one tree.
pub(crate) struct TreeOptimiser<'a> {
    /// The store directory.
    pub(crate) store: BorrowedFd<'a>,
    /// The directory `.links`.
    pub(crate) links: &'a Arc<OwnedFd>,
    /// The inodes of the files in `.links`. Files with these are linked already.
    pub(crate) linked: &'a HashSet<u64>,
    /// A name in the store directory that no other writer uses.
    pub(crate) temporary: &'a str,
    pub(crate) worker: &'a Worker,
    pub(crate) buffer: &'a mut Vec<u8>,
}

/// The files of a tree that were linked, and those that were not.
#[derive(Debug, Default)]
pub(crate) struct LinkedTree {
    /// The number of files that became links to existing files.
    pub(crate) files: u64,
    /// The sum of their sizes, in bytes.
    pub(crate) bytes: u64,
    /// Files that their owner may write. Another program may have changed them.
    pub(crate) writable: Vec<PathBuf>,
    /// The number of damaged files in `.links` that were replaced.
    pub(crate) damaged_links: u64,
}

/// A node of the tree.
struct NodePlace<'a> {
    parent: BorrowedFd<'a>,
    name: &'a [u8],
    path: &'a Path,
    depth: usize,
}

impl TreeOptimiser<'_> {
    /// Links the files of the tree with this name in the store directory. `path` is its place, for
    /// error messages.
    pub(crate) fn optimise(&mut self, name: &str, path: &Path) -> Result<LinkedTree, StoreError> {
        let mut result = LinkedTree::default();
        let place = NodePlace {
            parent: self.store,
            name: name.as_bytes(),
            path,
            depth: 0,
        };
        let stat = statat(place.parent, place.name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.io_context("examine", path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.directory(&place, &mut result)?,
            _ => {
                self.file(&place, &mut result)?;
            }
        }
        Ok(result)
    }

    fn directory(
        &mut self,
        place: &NodePlace<'_>,
        result: &mut LinkedTree,
    ) -> Result<(), StoreError> {
        check_depth(place.depth, place.path)?;
        let name = CString::new(place.name).map_err(io::Error::from);
        let is_checked = name.and_then(|name| check_same_mount(place.parent, &name));
        is_checked.io_context("link the files of", place.path)?;
        let (directory, entries) = open_directory(place.parent, place.name, place.path)?;
        let stat = fstat(&directory).io_context("examine", place.path)?;
        let mut is_sealed = is_sealed_directory(&stat);
        let linked = self.linked;
        let mut entries = entries.iter().filter(|it| !linked.contains(&it.inode));
        let done = entries.try_for_each(|entry| {
            let place = NodePlace {
                parent: directory.as_fd(),
                name: &entry.name,
                path: &place.path.join(as_path(&entry.name)),
                depth: place.depth + 1,
            };
            if entry.kind(place.parent, place.path)? == FileType::Directory {
                return self.directory(&place, result);
            }
            if is_sealed && !geteuid().is_root() {
                // Only root may rename a file in a sealed directory.
                let mode = Mode::from_raw_mode(0o755);
                fchmod(&directory, mode).io_context("unseal", place.path)?;
                is_sealed = false;
            }
            let is_replaced = self.file(&place, result);
            is_sealed &= !matches!(is_replaced, Ok(true));
            is_replaced.map(drop)
        });
        if !is_sealed {
            seal_directory(&directory).io_context("seal", place.path)?;
        }
        done
    }

    /// Links a file, and returns whether another file has replaced it.
    fn file(&mut self, place: &NodePlace<'_>, result: &mut LinkedTree) -> Result<bool, StoreError> {
        let examine = || statat(place.parent, place.name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = examine().io_context("examine", place.path)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_linkable = matches!(kind, FileType::RegularFile | FileType::Symlink);
        if !is_linkable || self.linked.contains(&stat.st_ino) {
            return Ok(false);
        }
        if kind == FileType::RegularFile && stat.st_mode & 0o200 != 0 {
            result.writable.push(place.path.to_path_buf());
            return Ok(false);
        }
        let hash = self.hash(place, kind, &stat)?;
        let mut links = TreeLinks::new(self.links.clone());
        let candidate = LinkCandidate {
            parent: place.parent,
            name: place.name,
            store: self.store,
            temporary: self.temporary,
        };
        links
            .optimise(candidate, &hash)
            .io_context("link", place.path)?;
        result.damaged_links += links.damaged.len() as u64;
        let is_replaced = examine().io_context("examine", place.path)?.st_ino != stat.st_ino;
        if is_replaced {
            result.files += 1;
            result.bytes += size(&stat);
        }
        Ok(is_replaced)
    }

    /// Returns the name of the file in `.links`.
    fn hash(
        &mut self,
        place: &NodePlace<'_>,
        kind: FileType,
        stat: &Stat,
    ) -> Result<String, StoreError> {
        let mut stream = self.worker.stream(size(stat));
        let mut sink = |chunk: &[u8]| {
            stream.update(chunk);
            Ok::<_, StoreError>(())
        };
        let (parent, name) = (place.parent, place.name);
        dump_node(parent, name, kind, place.path, self.buffer, &mut sink)?;
        Ok(Hash::sha256(stream.finish()).digest_nix32())
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
