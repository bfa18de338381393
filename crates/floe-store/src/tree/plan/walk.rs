//! The walk that makes a plan.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use floe_format::nar::write;
use rustix::fs::{AtFlags, CWD, FileType, readlinkat, statat};

use super::{Framing, NarPlan, PlannedFile};
use crate::error::{At as _, StoreError};
use crate::tree::read::{as_path, check_depth, open_directory};

impl NarPlan {
    /// Walks the tree at `path`.
    ///
    /// Errors: those of the system, [`StoreError::UnsupportedFile`], [`StoreError::TooDeep`].
    pub fn of(path: &Path) -> Result<NarPlan, StoreError> {
        let mut walk = Walk {
            framing: Vec::new(),
            files: Vec::new(),
            names: Vec::new(),
            contents: 0,
            path: path.into(),
            root_len: path.as_os_str().len() + 1,
        };
        write::begin(&mut walk.framing);
        walk.node(
            CWD,
            path.as_os_str().as_encoded_bytes(),
            FileType::Unknown,
            0,
        )?;
        walk.framing.shrink_to_fit();
        walk.files.shrink_to_fit();
        walk.names.shrink_to_fit();
        Ok(NarPlan {
            nar_size: walk.framing.len() as u64 + walk.contents,
            framing: Framing::Memory(walk.framing),
            files: walk.files,
            names: walk.names,
        })
    }
}

struct Walk {
    framing: Vec<u8>,
    files: Vec<PlannedFile>,
    names: Vec<u8>,
    /// The bytes of all contents so far.
    contents: u64,
    path: PathBuf,
    /// The length of the root's path and a slash.
    root_len: usize,
}

impl Walk {
    fn node(
        &mut self,
        parent: impl AsFd + Copy,
        name: &[u8],
        kind: FileType,
        depth: usize,
    ) -> Result<(), StoreError> {
        // A listing tells the kind but never the size.
        let stat = match kind {
            FileType::Directory | FileType::Symlink => None,
            _ => {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                Some(statat(parent, name, flags).at("examining", &self.path)?)
            }
        };
        let kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
        match (kind, stat) {
            (FileType::RegularFile, Some(stat)) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.file(stat.st_mode & 0o100 != 0, size);
                Ok(())
            }
            (FileType::Directory, _) => self.directory(parent, name, depth),
            (FileType::Symlink, _) => {
                let target =
                    readlinkat(parent, name, Vec::new()).at("reading the link", &self.path)?;
                write::symlink(&mut self.framing, target.as_bytes());
                Ok(())
            }
            _ => Err(StoreError::UnsupportedFile {
                path: self.path.clone(),
            }),
        }
    }

    fn file(&mut self, executable: bool, size: u64) {
        write::file_header(&mut self.framing, executable, size);
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
        write::file_end(&mut self.framing, size);
    }

    fn directory(
        &mut self,
        parent: impl AsFd,
        name: &[u8],
        depth: usize,
    ) -> Result<(), StoreError> {
        check_depth(depth, &self.path)?;
        let (directory, entries) = open_directory(parent.as_fd(), name, &self.path)?;
        write::directory(&mut self.framing);
        for entry in entries {
            self.path.push(as_path(&entry.name));
            write::entry(&mut self.framing, &entry.name);
            self.node(directory.as_fd(), &entry.name, entry.kind, depth + 1)?;
            write::end_entry(&mut self.framing);
            self.path.pop();
        }
        write::end_directory(&mut self.framing);
        Ok(())
    }
}
