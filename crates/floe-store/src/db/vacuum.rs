//! Gives the space of deleted rows back to the file system.
//!
//! SQLite keeps the pages of deleted rows for new ones and never makes the file smaller. A vacuum
//! writes all rows into a temporary file, and copies it over the database in one transaction. Other
//! processes read meanwhile, and wait with their changes. A kill or a power cut leaves the old
//! contents.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rusqlite::ErrorCode;

use super::{Database, database_error};
use crate::error::{StoreError, VACUUM};

/// The size of a database file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseSpace {
    /// The size of the file, in bytes.
    pub bytes: u64,
    /// How many of these bytes have no contents, because rows were deleted.
    pub unused_bytes: u64,
}

impl DatabaseSpace {
    /// Whether a vacuum is worth its time: a quarter of the file is unused, and more than 1 MiB.
    pub fn is_sparse(self) -> bool {
        self.unused_bytes > UNUSED_BYTES_MIN && self.unused_bytes >= self.bytes / UNUSED_SHARE
    }
}

impl Database {
    /// Returns the size of the database as this connection sees it. Its log may have a part.
    pub(crate) fn space(&self) -> Result<DatabaseSpace, StoreError> {
        let value = |pragma: &str| {
            let found = self.query("find the size of", pragma, |query| {
                query.query_row((), |row| row.get::<_, i64>(0))
            });
            found.map(i64::unsigned_abs)
        };
        let page = value("pragma page_size")?;
        Ok(DatabaseSpace {
            bytes: value("pragma page_count")? * page,
            unused_bytes: value("pragma freelist_count")? * page,
        })
    }

    /// Makes the file as small as its rows allow, and truncates the log. Returns `false` while
    /// another process reads the database: the file keeps its size until the log is truncated
    /// later.
    ///
    /// Errors: [`StoreError::Interrupted`] if it should not continue, and those of SQLite.
    /// They leave the database as it was.
    pub(crate) fn vacuum(
        &self,
        should_continue: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, StoreError> {
        let interrupt = self.connection.get_interrupt_handle();
        let (done, wait_for_end) = channel::<()>();
        let watch = move || {
            while wait_for_end.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if !should_continue() {
                    interrupt.interrupt();
                }
            }
        };
        let vacuumed = thread::scope(|scope| {
            // Without a thread, the vacuum goes on to its end.
            let _watcher = thread::Builder::new().spawn_scoped(scope, watch);
            let vacuumed = self.connection.execute_batch(STATEMENTS);
            drop(done);
            vacuumed
        });
        vacuumed.map_err(|source| match source.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => StoreError::Interrupted,
            _ => database_error(VACUUM, &self.file, source),
        })?;
        Ok(self.truncate_log())
    }
}

/// The temporary file may be too large for the memory, which other statements use.
const STATEMENTS: &str = "pragma temp_store = file; vacuum; pragma temp_store = memory";

/// How often a vacuum asks whether it should continue.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The unused part of a file with which a vacuum is worth its time: a quarter.
const UNUSED_SHARE: u64 = 4;

/// A vacuum that frees less is not worth a hint.
const UNUSED_BYTES_MIN: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;

    use floe_format::StoreDir;

    use super::*;
    use crate::db::MissingTables;
    use crate::disk::StoreLayout;
    use crate::options::WriteOptions;

    #[test]
    fn interrupted_vacuum_leaves_the_database_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        let options = WriteOptions::default().database(MissingTables::Create);
        let database = Database::open_writable(&layout, &options).unwrap();
        // The vacuum takes longer than the first interval.
        let rows =
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
            insert into ValidPaths (path, hash, registrationTime)
            select printf('/nix/store/%032d-path', i), printf('%0100d', i), 1 from n;
            delete from ValidPaths where id % 2 = 0";
        database.connection.execute_batch(rows).unwrap();
        let before = database.space().unwrap();
        let error = database.vacuum(&|| false).unwrap_err();
        assert!(matches!(error, StoreError::Interrupted), "{error}");
        assert_eq!(database.space().unwrap(), before);
    }

    #[test]
    fn quarter_of_a_large_database_is_worth_a_vacuum() {
        let space = |bytes, unused_bytes| DatabaseSpace {
            bytes,
            unused_bytes,
        };
        assert!(space(40 << 20, 10 << 20).is_sparse());
        assert!(!space(40 << 20, (10 << 20) - 4096).is_sparse());
        assert!(!space(1 << 20, 1 << 20).is_sparse());
    }
}
