//! Detects from file metadata whether the database is still the file that was opened.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::db::{AccessMode, may_write, side_file};
use crate::error::{IoContext as _, StoreError, is_not_found};

/// The change of a database since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No change.
    None,
    /// A process wrote to the file.
    Contents,
    /// Another file has replaced it, so it must be opened again.
    File,
}

/// The identity of one file among all files that ever had its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    /// Inode numbers are reused, so the creation time counts as well if the file system has one.
    created: Option<SystemTime>,
}

/// The version of a file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileVersion {
    identity: FileIdentity,
    size: u64,
    modified: Option<SystemTime>,
}

/// The state of an open database file and its side files.
#[derive(Debug)]
pub(super) struct FileWatch {
    file: PathBuf,
    access: AccessMode,
    version: FileVersion,
    /// The side files that matter for this kind of access.
    side_files: Vec<Option<FileVersion>>,
    /// The versions of database and log. Present if SQLite reports changes that did not happen.
    unreliable_log: Option<[Option<FileVersion>; 2]>,
}

impl FileWatch {
    /// Records the state of a database that is about to be opened.
    pub(super) fn before_open(file: &Path) -> Result<FileWatch, StoreError> {
        Ok(FileWatch {
            // If the file is missing, its opening reports the error.
            version: file_version(file)?.unwrap_or_default(),
            side_files: side_file_versions(file, AccessMode::Immutable)?,
            access: AccessMode::Immutable,
            unreliable_log: None,
            file: file.to_path_buf(),
        })
    }

    /// Adapts the watch to the way in which the database was opened.
    pub(super) fn set_access(&mut self, access: AccessMode) -> Result<(), StoreError> {
        self.access = access;
        if access != AccessMode::Immutable {
            // The first query may have created the side files.
            self.side_files = side_file_versions(&self.file, access)?;
        }
        if access == AccessMode::Wal && !may_write(&side_file(&self.file, WAL_INDEX_SUFFIX)) {
            // The versions that the first query saw are not known.
            self.unreliable_log = Some([None, None]);
        }
        Ok(())
    }

    /// The identity of the file that was opened.
    pub(super) fn identity(&self) -> &FileIdentity {
        &self.version.identity
    }

    /// Returns the change since the last check.
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
            // The log reports every commit by itself.
            AccessMode::Wal => Ok(Change::None),
            AccessMode::Immutable if written || now.is_recent() => Ok(Change::File),
            AccessMode::LockDirectory if written || now.is_unreliable() => {
                self.version = now;
                Ok(Change::Contents)
            }
            AccessMode::Immutable | AccessMode::LockDirectory => Ok(Change::None),
        }
    }

    /// Checks whether a change that SQLite reports is a real one.
    ///
    /// A process that may not write the index of the log, and that is alone, reads the log again
    /// for each query (`walBeginShmUnreliable` in SQLite). SQLite then reports a change each time.
    pub(super) fn confirm_change(&mut self) -> Result<Change, StoreError> {
        let Some(before) = &mut self.unreliable_log else {
            return Ok(Change::Contents);
        };
        let log = side_file(&self.file, "-wal");
        let now = [file_version(&self.file)?, file_version(&log)?];
        let is_recent = now.iter().flatten().any(FileVersion::is_unreliable);
        if now == *before && !is_recent {
            return Ok(Change::None);
        }
        *before = now;
        Ok(Change::Contents)
    }
}

impl FileVersion {
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

    /// Whether another write could leave the same modification time.
    fn is_recent(&self) -> bool {
        self.modified.is_none_or(|time| {
            let distance = time.elapsed().unwrap_or_else(|ahead| ahead.duration());
            distance <= TIMESTAMP_GRANULARITY
        })
    }

    /// Whether a write may have happened after the time was read. A time in the future comes from
    /// another clock and does not show how recent the write is.
    fn is_unreliable(&self) -> bool {
        self.is_recent() || self.modified.is_some_and(|time| time.elapsed().is_err())
    }
}

fn file_version(file: &Path) -> Result<Option<FileVersion>, StoreError> {
    let metadata = fs::metadata(file);
    if is_not_found(&metadata) {
        return Ok(None);
    }
    let metadata = metadata.io_context("look for changes of", file)?;
    Ok(Some(FileVersion::of(&metadata)))
}

fn side_file_versions(
    file: &Path,
    access: AccessMode,
) -> Result<Vec<Option<FileVersion>>, StoreError> {
    let suffixes: &[&str] = match access {
        // A new index means that another process deleted the log because it did not notice this
        // reader.
        AccessMode::Wal => &[WAL_INDEX_SUFFIX],
        AccessMode::LockDirectory => &[],
        // If one of these files appears, a process writes to the database.
        AccessMode::Immutable => &["-wal", "-shm", "-journal"],
    };
    suffixes
        .iter()
        .map(|suffix| {
            let mut found = file_version(&side_file(file, suffix))?;
            if let (AccessMode::Wal, Some(found)) = (access, &mut found) {
                // Size and time of the index change with each commit.
                (found.size, found.modified) = (0, None);
            }
            Ok(found)
        })
        .collect()
}

/// The suffix of the index of the log, which readers lock.
const WAL_INDEX_SUFFIX: &str = "-shm";

/// Two writes within this time may leave the same modification time. Kernels count file times in
/// ticks of up to 10 ms. FAT is coarser, but cannot hold a store.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(20);
