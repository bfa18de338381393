//! The write-ahead log on a disk with little space.
//!
//! As in Nix, SQLite copies the log into the database only when the log has 160 MB. This limit
//! makes large copies and collections fast, but a log that grows takes the last space of a full
//! disk. floe therefore truncates the log when it is large beside the free space, and when a
//! transaction did not fit.
//!
//! A process that reads the database keeps the log: it may still need the old pages.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{ErrorCode, ffi};
use rustix::fs::Mode;

use super::readers::find_readers;
use super::{Database, side_file};
use crate::disk::{WrittenFile, free_bytes};
use crate::error::{DatabaseReader, StoreError, is_out_of_space};
use crate::locks::LockWait;

impl Database {
    /// Truncates the log if it is large beside the free space.
    pub(super) fn limit_log(&self) {
        let free = self.file.parent().and_then(free_bytes);
        let len = self.log_len();
        if len > 0 && free.is_some_and(|free| len > free / LOG_SHARE) {
            self.truncate_log();
        }
    }

    /// Truncates the log after a collection. Nix opens the database for hours and would keep it.
    pub(crate) fn truncate_large_log(&self) {
        if self.log_len() > LOG_KEPT {
            self.truncate_log();
        }
    }

    /// Copies the log into the database and truncates it. Returns `false` if another process
    /// reads the database, which keeps a part of the log. Waits for readers only for a moment.
    pub(crate) fn truncate_log(&self) -> bool {
        let _scope = LockWait::expired().enter_scope();
        let text = "pragma wal_checkpoint(truncate)";
        let is_blocked = self.connection.query_row(text, (), |row| row.get(0));
        is_blocked == Ok(false)
    }

    /// Returns the processes whose reading keeps the log; `None` if the log is empty or can be
    /// truncated.
    pub(crate) fn log_readers(&self) -> Option<Vec<DatabaseReader>> {
        (self.log_len() > 0 && !self.truncate_log()).then(|| find_readers(&self.file))
    }

    /// Repeats a transaction that did not fit on the disk after truncating the log.
    pub(super) fn retry_when_full<T>(
        &self,
        write: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let written = write().or_else(|error| {
            if error.is_out_of_space() {
                self.truncate_log();
                write()
            } else {
                Err(error)
            }
        });
        self.limit_log();
        written
    }

    fn log_len(&self) -> u64 {
        let log = fs::metadata(side_file(&self.file, "-wal"));
        log.map_or(0, |found| found.len())
    }
}

/// Returns SQLite's error for a full disk if that is the cause of a vague error: SQLite reports a
/// `disk I/O error` if it cannot extend the index of the log or if a quota is exceeded, and
/// `unable to open database file` if there is no inode for the log.
pub(super) fn with_cause(error: rusqlite::Error, file: &Path) -> rusqlite::Error {
    use ErrorCode::{CannotOpen, SystemIoFailure};
    let code = error.sqlite_error_code();
    let is_vague = matches!(code, Some(CannotOpen | SystemIoFailure));
    if is_vague && file.parent().is_some_and(has_no_space) {
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None)
    } else {
        error
    }
}

/// Whether a small file cannot be written in a directory, because there is no space left.
fn has_no_space(directory: &Path) -> bool {
    let number = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = format!("floe-space-{}-{number}", std::process::id());
    let place = directory.join(name);
    let write = || -> io::Result<()> {
        let file = WrittenFile::create(&place, Mode::RUSR | Mode::WUSR)?;
        file.complete(|file| {
            fs::remove_file(&place)?;
            file.write_all(&[0; PROBE_LEN])
        })
    };
    write().is_err_and(|error| is_out_of_space(&error))
}

/// Distinguishes the names of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// The log may have a quarter of the free space, so that the next transactions fit as well.
const LOG_SHARE: u64 = 4;

/// A log that SQLite reads and writes again without much use of space.
const LOG_KEPT: u64 = 1024 * 1024;

/// Twice the size by which SQLite extends the index of the log.
const PROBE_LEN: usize = 64 * 1024;
