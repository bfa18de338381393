//! Builds a plan by a walk over the tree.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;

use floe_format::nar::write;
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};

use super::{NarPlan, PlannedFile};
use crate::error::{IoContext as _, StoreError};
use crate::tree::dump::{
    ListedEntry, as_path, check_depth, is_executable, open_directory, read_target,
};

impl NarPlan {
    /// Walks over the tree at `path`.
    ///
    /// Errors: those of the system, [`StoreError::UnsupportedFile`], [`StoreError::TooDeep`].
    pub fn new(path: &Path) -> Result<NarPlan, StoreError> {
        let mut builder = PlanBuilder {
            framing: Vec::new(),
            files: Vec::new(),
            names: Vec::new(),
            contents: 0,
            path: path.into(),
            root_len: path.as_os_str().len() + 1,
        };
        write::begin(&mut builder.framing);
        let name = path.as_os_str().as_encoded_bytes();
        builder.node(CWD, name, FileType::Unknown, None, 0)?;
        builder.framing.shrink_to_fit();
        builder.files.shrink_to_fit();
        builder.names.shrink_to_fit();
        let framing_len = builder.framing.len() as u64;
        Ok(NarPlan {
            nar_size: framing_len + builder.contents,
            framing: builder.framing,
            framing_len,
            packed: None,
            files: builder.files,
            names: builder.names,
        })
    }
}

struct PlanBuilder {
    framing: Vec<u8>,
    files: Vec<PlannedFile>,
    names: Vec<u8>,
    /// The total size of the contents so far.
    contents: u64,
    path: PathBuf,
    /// The length of the path of the root, including a slash.
    root_len: usize,
}

impl PlanBuilder {
    fn node(
        &mut self,
        parent: impl AsFd + Copy,
        name: &[u8],
        kind: FileType,
        stat: Option<rustix::io::Result<Stat>>,
        depth: usize,
    ) -> Result<(), StoreError> {
        let stat = stat.or_else(|| examine(parent, name, kind));
        let stat = stat.transpose().io_context("examine", &self.path)?;
        let kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        match (kind, stat) {
            (FileType::RegularFile, Some(stat)) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.file(is_executable(&stat), size);
                Ok(())
            }
            (FileType::Directory, _) => self.directory(parent, name, depth),
            (FileType::Symlink, _) => {
                let target = read_target(parent, name, &self.path)?;
                write::symlink(&mut self.framing, target.as_bytes());
                Ok(())
            }
            _ => Err(StoreError::UnsupportedFile(self.path.clone())),
        }
    }

    fn file(&mut self, executable: bool, size: u64) {
        write::begin_file(&mut self.framing, executable, size);
        let path = self.path.as_os_str().as_encoded_bytes();
        let name = path.get(self.root_len..).unwrap_or_default();
        self.names.extend_from_slice(name);
        let framing = self.framing.len() as u64;
        self.files.push(PlannedFile {
            offset: framing + self.contents,
            size,
            framing,
            names: self.names.len(),
            executable,
        });
        self.contents += size;
        write::end_file(&mut self.framing, size);
    }

    fn directory(
        &mut self,
        parent: impl AsFd,
        name: &[u8],
        depth: usize,
    ) -> Result<(), StoreError> {
        check_depth(depth, &self.path)?;
        let (directory, entries) = open_directory(parent.as_fd(), name, &self.path)?;
        write::begin_directory(&mut self.framing);
        let directory = directory.as_fd();
        if entries.len() < SHARED_MIN {
            for entry in &entries {
                self.entry(directory, entry, None, depth)?;
            }
        } else {
            // The `stat` calls take most of the time, so a second thread does half of them.
            let (first, second) = entries.split_at(entries.len() / 2);
            thread::scope(|scope| {
                let examine_all = || -> Vec<_> {
                    let examine = |entry: &ListedEntry| examine(directory, &entry.name, entry.kind);
                    second.iter().map(examine).collect()
                };
                let examining = thread::Builder::new().spawn_scoped(scope, examine_all);
                for entry in first {
                    self.entry(directory, entry, None, depth)?;
                }
                // Without the second thread, this thread makes the calls itself.
                let stats = examining.map(|thread| thread.join().unwrap_or_default());
                let mut stats = stats.unwrap_or_default().into_iter();
                for entry in second {
                    self.entry(directory, entry, stats.next().flatten(), depth)?;
                }
                Ok::<(), StoreError>(())
            })?;
        }
        write::end_directory(&mut self.framing);
        Ok(())
    }

    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &ListedEntry,
        stat: Option<rustix::io::Result<Stat>>,
        depth: usize,
    ) -> Result<(), StoreError> {
        self.path.push(as_path(&entry.name));
        write::begin_entry(&mut self.framing, &entry.name);
        self.node(directory, &entry.name, entry.kind, stat, depth + 1)?;
        write::end_entry(&mut self.framing);
        self.path.pop();
        Ok(())
    }
}

/// Returns the metadata that a directory listing lacks. Only files need it, for their size.
fn examine(parent: impl AsFd, name: &[u8], kind: FileType) -> Option<rustix::io::Result<Stat>> {
    match kind {
        FileType::Directory | FileType::Symlink => None,
        _ => Some(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)),
    }
}

/// The start of a thread takes as long as fifty `stat` calls, so a second thread pays from here on.
const SHARED_MIN: usize = 400;
