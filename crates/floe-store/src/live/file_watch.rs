//! Whether the database is still the file that was opened, by what the file system says.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::db::{AccessMode, side_file};
use crate::error::{IoContext as _, StoreError};

/// What may have become of a database since it was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// It was written to.
    Contents,
    /// It must be opened again.
    File,
}

/// One file among all that ever had its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    /// Numbers of inodes are given again, so the time of birth is looked at too where there is one.
    created: Option<SystemTime>,
}

/// Which contents a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileVersion {
    identity: FileIdentity,
    size: u64,
    modified: Option<SystemTime>,
}

/// A database before it is opened.
pub(super) struct BeforeOpen {
    file: PathBuf,
    version: FileVersion,
    side_files: Vec<Option<FileVersion>>,
}

/// An open database file and those beside it.
#[derive(Debug)]
pub(super) struct FileWatch {
    file: PathBuf,
    access: AccessMode,
    version: FileVersion,
    /// Those beside it, as far as they matter for this kind of access.
    side_files: Vec<Option<FileVersion>>,
    /// The database file and its log, where SQLite tells of changes that there were none.
    unreliable_log: Option<[Option<FileVersion>; 2]>,
}

impl FileWatch {
    /// Looks at a database that is about to be opened.
    pub(super) fn before_open(file: &Path) -> Result<BeforeOpen, StoreError> {
        Ok(BeforeOpen {
            version: file_version(file)?.unwrap_or_else(FileVersion::none),
            side_files: side_file_versions(file, AccessMode::Immutable)?,
            file: file.to_path_buf(),
        })
    }

    /// The file that was opened.
    pub(super) fn identity(&self) -> &FileIdentity {
        &self.version.identity
    }

    /// What has happened since the last look.
    pub(super) fn poll(&mut self) -> Result<Change, StoreError> {
        let Some(now) = file_version(&self.file)? else {
            return Ok(Change::File);
        };
        let same_file = now.identity == self.version.identity;
        if !same_file || side_file_versions(&self.file, self.access)? != self.side_files {
            return Ok(Change::File);
        }
        let written = now != self.version;
        match self.access {
            // The log tells of every commit by itself.
            AccessMode::Wal => Ok(Change::None),
            AccessMode::Immutable if written || now.is_recent() => Ok(Change::File),
            AccessMode::LockDirectory if written || now.is_recent() || now.is_in_future() => {
                self.version = now;
                Ok(Change::Contents)
            }
            AccessMode::Immutable | AccessMode::LockDirectory => Ok(Change::None),
        }
    }

    /// Whether a change that SQLite tells of was one.
    ///
    /// Who may not write to the log's index, and is alone, reads the log anew for each question
    /// (`walBeginShmUnreliable` of SQLite), and is told each time that it has changed.
    pub(super) fn confirm_change(&mut self) -> Result<Change, StoreError> {
        let Some(before) = &mut self.unreliable_log else {
            return Ok(Change::Contents);
        };
        let now = database_and_log_versions(&self.file)?;
        let is_recent = now.iter().flatten().any(FileVersion::is_unreliable);
        if now == *before && !is_recent {
            return Ok(Change::None);
        }
        *before = now;
        Ok(Change::Contents)
    }
}

impl BeforeOpen {
    /// The watch over it once it is open.
    pub(super) fn opened(self, access: AccessMode) -> Result<FileWatch, StoreError> {
        let side_files = match access {
            AccessMode::Immutable => self.side_files,
            // The first question may have made them.
            AccessMode::Wal | AccessMode::LockDirectory => side_file_versions(&self.file, access)?,
        };
        let index = crate::db::side_file(&self.file, WAL_INDEX_SUFFIX);
        let may_write = access != AccessMode::Wal || may_write(&index);
        Ok(FileWatch {
            access,
            version: self.version,
            side_files,
            // Nothing is known yet of what the first question will have seen.
            unreliable_log: (!may_write).then_some([None, None]),
            file: self.file,
        })
    }
}

impl FileVersion {
    /// Of a file that is not there: opening it says so.
    fn none() -> FileVersion {
        FileVersion {
            identity: FileIdentity {
                device: 0,
                inode: 0,
                created: None,
            },
            size: 0,
            modified: None,
        }
    }

    fn of(metadata: &Metadata) -> FileVersion {
        FileVersion {
            identity: FileIdentity {
                device: metadata.dev(),
                inode: metadata.ino(),
                created: metadata.created().ok(),
            },
            size: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }

    /// Whether another write could leave the same time behind.
    fn is_recent(&self) -> bool {
        let distance = match self.modified.map(|time| time.elapsed()) {
            Some(Ok(age)) => age,
            Some(Err(ahead)) => ahead.duration(),
            None => return true,
        };
        distance <= TIMESTAMP_GRANULARITY
    }

    /// Whether it may have been written to after its time was read.
    fn is_unreliable(&self) -> bool {
        self.is_recent() || self.is_in_future()
    }

    /// Whether the time is one of a clock that is ahead, and so says nothing about recency.
    fn is_in_future(&self) -> bool {
        self.modified.is_some_and(|time| time.elapsed().is_err())
    }
}

fn file_version(file: &Path) -> Result<Option<FileVersion>, StoreError> {
    match fs::metadata(file) {
        Ok(metadata) => Ok(Some(FileVersion::of(&metadata))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).io_context("looking for changes of", file),
    }
}

/// The database file and its log.
fn database_and_log_versions(file: &Path) -> Result<[Option<FileVersion>; 2], StoreError> {
    Ok([file_version(file)?, file_version(&side_file(file, "-wal"))?])
}

fn may_write(file: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn side_file_versions(
    file: &Path,
    access: AccessMode,
) -> Result<Vec<Option<FileVersion>>, StoreError> {
    let suffixes: &[&str] = match access {
        // Another one means that somebody took this reader for gone, and the log with it.
        AccessMode::Wal => &[WAL_INDEX_SUFFIX],
        AccessMode::LockDirectory => &[],
        // Their coming means that somebody writes.
        AccessMode::Immutable => &["-wal", "-shm", "-journal"],
    };
    suffixes
        .iter()
        .map(|suffix| {
            let mut found = file_version(&side_file(file, suffix))?;
            if let (AccessMode::Wal, Some(found)) = (access, &mut found) {
                // Its contents change with every commit.
                (found.size, found.modified) = (0, None);
            }
            Ok(found)
        })
        .collect()
}

/// The index of the log, which readers lock.
const WAL_INDEX_SUFFIX: &str = "-shm";

/// Two writes closer than this may leave the same time at a file: kernels count it in ticks of up
/// to 10 ms, and FAT, the coarsest, is no home for a store.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(20);
