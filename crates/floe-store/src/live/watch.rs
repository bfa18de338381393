//! Whether the database is still the file that was opened, by what the file system says.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::database::{Access, beside};
use crate::error::{At as _, StoreError};

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
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// Numbers of inodes are given again, so the time of birth is looked at too where there is one.
    born: Option<SystemTime>,
}

/// Which contents a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    identity: Identity,
    size: u64,
    modified: Option<SystemTime>,
}

/// A database before it is opened.
pub(super) struct Before {
    file: PathBuf,
    version: Version,
    beside: Vec<Option<Version>>,
}

/// An open database file and those beside it.
#[derive(Debug)]
pub(super) struct Watch {
    file: PathBuf,
    access: Access,
    version: Version,
    /// Those beside it, as far as they matter for this kind of access.
    beside: Vec<Option<Version>>,
    /// The database file and its log, where SQLite tells of changes that there were none.
    doubted: Option<[Option<Version>; 2]>,
}

impl Watch {
    /// Looks at a database that is about to be opened.
    pub(super) fn before(file: &Path) -> Result<Before, StoreError> {
        Ok(Before {
            version: version(file)?.unwrap_or_else(Version::none),
            beside: versions_beside(file, Access::AsItStands)?,
            file: file.to_path_buf(),
        })
    }

    /// The file that was opened.
    pub(super) fn identity(&self) -> &Identity {
        &self.version.identity
    }

    /// What has happened since the last look.
    pub(super) fn look(&mut self) -> Result<Change, StoreError> {
        let Some(now) = version(&self.file)? else {
            return Ok(Change::File);
        };
        let same_file = now.identity == self.version.identity;
        if !same_file || versions_beside(&self.file, self.access)? != self.beside {
            return Ok(Change::File);
        }
        let written = now != self.version;
        match self.access {
            // The log tells of every commit by itself.
            Access::Log => Ok(Change::None),
            Access::AsItStands if written || now.is_recent() => Ok(Change::File),
            Access::LockDirectory if written || now.is_recent() || now.is_to_come() => {
                self.version = now;
                Ok(Change::Contents)
            }
            Access::AsItStands | Access::LockDirectory => Ok(Change::None),
        }
    }

    /// Whether a change that SQLite tells of was one.
    ///
    /// Who may not write to the log's index, and is alone, reads the log anew for each question
    /// (`walBeginShmUnreliable` of SQLite), and is told each time that it has changed.
    pub(super) fn confirm(&mut self) -> Result<Change, StoreError> {
        let Some(before) = &mut self.doubted else {
            return Ok(Change::Contents);
        };
        let now = contents(&self.file)?;
        let is_recent = now.iter().flatten().any(Version::is_doubtful);
        if now == *before && !is_recent {
            return Ok(Change::None);
        }
        *before = now;
        Ok(Change::Contents)
    }
}

impl Before {
    /// The watch over it once it is open.
    pub(super) fn after(self, access: Access) -> Result<Watch, StoreError> {
        let beside = match access {
            Access::AsItStands => self.beside,
            // The first question may have made them.
            Access::Log | Access::LockDirectory => versions_beside(&self.file, access)?,
        };
        let index = crate::database::beside(&self.file, LOG_INDEX);
        let may_write = access != Access::Log || may_write(&index);
        Ok(Watch {
            access,
            version: self.version,
            beside,
            // Nothing is known yet of what the first question will have seen.
            doubted: (!may_write).then_some([None, None]),
            file: self.file,
        })
    }
}

impl Version {
    /// Of a file that is not there: opening it says so.
    fn none() -> Version {
        Version {
            identity: Identity {
                device: 0,
                inode: 0,
                born: None,
            },
            size: 0,
            modified: None,
        }
    }

    fn of(metadata: &Metadata) -> Version {
        Version {
            identity: Identity {
                device: metadata.dev(),
                inode: metadata.ino(),
                born: metadata.created().ok(),
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
        distance <= TIME_GRAIN
    }

    /// Whether it may have been written to after its time was read.
    fn is_doubtful(&self) -> bool {
        self.is_recent() || self.is_to_come()
    }

    /// Whether the time is one of a clock that is ahead, and so says nothing about recency.
    fn is_to_come(&self) -> bool {
        self.modified.is_some_and(|time| time.elapsed().is_err())
    }
}

fn version(file: &Path) -> Result<Option<Version>, StoreError> {
    match fs::metadata(file) {
        Ok(metadata) => Ok(Some(Version::of(&metadata))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("looking for changes of", file),
    }
}

/// The database file and its log.
fn contents(file: &Path) -> Result<[Option<Version>; 2], StoreError> {
    Ok([version(file)?, version(&beside(file, "-wal"))?])
}

fn may_write(file: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn versions_beside(file: &Path, access: Access) -> Result<Vec<Option<Version>>, StoreError> {
    let suffixes: &[&str] = match access {
        // Another one means that somebody took this reader for gone, and the log with it.
        Access::Log => &[LOG_INDEX],
        Access::LockDirectory => &[],
        // Their coming means that somebody writes.
        Access::AsItStands => &["-wal", "-shm", "-journal"],
    };
    suffixes
        .iter()
        .map(|suffix| {
            let mut found = version(&beside(file, suffix))?;
            if let (Access::Log, Some(found)) = (access, &mut found) {
                // Its contents change with every commit.
                (found.size, found.modified) = (0, None);
            }
            Ok(found)
        })
        .collect()
}

/// The index of the log, which readers lock.
const LOG_INDEX: &str = "-shm";

/// Two writes closer than this may leave the same time at a file: kernels count it in ticks of up
/// to 10 ms, and FAT, the coarsest, is no home for a store.
const TIME_GRAIN: Duration = Duration::from_millis(20);
