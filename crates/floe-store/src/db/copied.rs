//! Reads a copy of a database whose last transactions are in a side file that this user cannot
//! apply: the write-ahead log or the journal of a writer that crashed, on a read-only file system
//! or in a directory of another user.
//!
//! SQLite reads a write-ahead log through an index in shared memory, `-shm`, which a reader without
//! write permission cannot create.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::Mode;

use super::immutable::open_immutable;
use super::{is_empty, may_write, side_file};
use crate::disk::WrittenFile;

/// A file beside a database with transactions that the database does not have, or with those that
/// it must lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideFile {
    Log,
    Journal,
}

impl SideFile {
    /// Returns the side file that only a copy of the database can apply, if there is one.
    pub(super) fn unapplied(file: &Path) -> Option<SideFile> {
        if !is_empty(&SideFile::Log.beside(file)) {
            let has_index = side_file(file, "-shm").exists();
            return (!has_index).then_some(SideFile::Log);
        }
        let has_journal = !is_empty(&SideFile::Journal.beside(file));
        let may_apply = file.parent().is_some_and(may_write);
        (has_journal && !may_apply).then_some(SideFile::Journal)
    }

    fn beside(self, file: &Path) -> PathBuf {
        let suffix = match self {
            SideFile::Log => "-wal",
            SideFile::Journal => "-journal",
        };
        side_file(file, suffix)
    }
}

/// Opens a copy of a database with the transactions of the side file. The copy has no name when
/// this returns.
///
/// Errors: those of SQLite, and an error with a reason if there can be no copy, which names the
/// remedy.
pub(super) fn open_copy(file: &Path, side: SideFile) -> rusqlite::Result<Connection> {
    let copied = copy(file, side).map_err(|cause| {
        let directory = file.parent().unwrap_or(file).display();
        let reason = format!(
            "a crash has left transactions in {}, and this user can neither apply them nor read \
             them in a copy ({cause}); try the command as a user who may write to {directory}",
            side.beside(file).display(),
        );
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        rusqlite::Error::SqliteFailure(code, Some(reason))
    })?;
    let copy = copied.path().join(NAME);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&copy, flags)?;
    // Applies the side file and removes it.
    connection.pragma_update(None, "journal_mode", "delete")?;
    drop(connection);
    open_immutable(&copy)
}

fn copy(file: &Path, side: SideFile) -> io::Result<tempfile::TempDir> {
    let side_file = side.beside(file);
    for _ in 0..ATTEMPTS_MAX {
        let before = [version(file)?, version(&side_file)?];
        let size = before[0].len.saturating_add(before[1].len);
        if size > SIZE_MAX {
            let limit = SIZE_MAX >> 20;
            let text = format!("they have more than {limit} MiB");
            return Err(io::Error::other(text));
        }
        let directory = tempfile::Builder::new().prefix("floe-").tempdir()?;
        let copy = directory.path().join(NAME);
        copy_file(file, &copy)?;
        copy_file(&side_file, &side.beside(&copy))?;
        // A writer that began meanwhile may have moved transactions from one file to the other.
        if [version(file)?, version(&side_file)?] == before {
            return Ok(directory);
        }
    }
    Err(io::Error::other("another process changes them"))
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let copy = WrittenFile::create(to, Mode::RUSR | Mode::WUSR)?;
    copy.complete(|mut file| io::copy(&mut source, &mut file))?;
    Ok(())
}

/// The properties of a file that each write changes.
#[derive(PartialEq, Eq)]
struct Version {
    len: u64,
    inode: u64,
    times: [(i64, i64); 2],
}

fn version(file: &Path) -> io::Result<Version> {
    let found = fs::metadata(file)?;
    Ok(Version {
        len: found.len(),
        inode: found.ino(),
        times: [
            (found.mtime(), found.mtime_nsec()),
            (found.ctime(), found.ctime_nsec()),
        ],
    })
}

const NAME: &str = "db.sqlite";

/// A copy of a larger database takes too much time and space for a command that changes nothing.
const SIZE_MAX: u64 = 2 << 30;

const ATTEMPTS_MAX: usize = 3;
