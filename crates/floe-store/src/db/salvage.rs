//! Reads the rows of a damaged database that can still be read.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use floe_format::PathInfo;
use rusqlite::ErrorCode;

use super::Database;
use super::damaged_rows::SkippedRows;
use super::immutable::open_immutable;
use super::path_row::{COLUMNS, PathRow};
use crate::disk::StoreLayout;
use crate::error::StoreError;

impl Database {
    /// Checks all pages and indexes of the file.
    ///
    /// Errors: [`StoreError::Database`] with the first defect.
    pub(crate) fn check_integrity(&self) -> Result<(), StoreError> {
        let found = self.query("check", "pragma integrity_check(1)", |query| {
            query.query_row((), |row| row.get::<_, String>(0))
        })?;
        if found == "ok" {
            return Ok(());
        }
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        let source = rusqlite::Error::SqliteFailure(code, Some(found));
        Err(super::database_error("check", &self.file, source))
    }

    /// Opens a copy of a database that does not change.
    ///
    /// Errors: those of SQLite.
    pub(crate) fn open_saved(layout: &StoreLayout, file: &Path) -> Result<Database, StoreError> {
        let opened = open_immutable(file);
        let connection = opened.map_err(|source| super::database_error("open", file, source))?;
        Ok(Database {
            connection,
            file: file.to_owned(),
            layout: layout.clone(),
            skipped_rows: SkippedRows::default(),
            _big_lock: None,
        })
    }

    /// Writes a copy of the database to a file that does not exist.
    ///
    /// Errors: those of SQLite. No part of the copy stays then.
    pub(crate) fn copy_to(&self, file: &Path) -> Result<(), StoreError> {
        let name = file.as_os_str().as_bytes();
        let name = String::from_utf8_lossy(name);
        let copied = self.query("copy", "vacuum into ?1", |query| query.execute([name]));
        if copied.is_err() {
            // The first error is the one to report.
            let _: io::Result<()> = fs::remove_file(file);
        }
        copied.map(|_| ())
    }

    /// Returns what is registered about the paths whose rows can be read, in no fixed order. Their
    /// references may be incomplete, because a damaged page takes its rows with it.
    pub(crate) fn salvage(&self) -> Vec<PathInfo> {
        let rows = self.readable_ids();
        let rows = rows.into_iter().filter_map(|row| self.read_row(row).ok()?);
        rows.filter_map(|row| self.parse_row(row).ok()).collect()
    }

    /// The numbers of rows, from both ends of the table to the first page that is damaged.
    fn readable_ids(&self) -> BTreeSet<i64> {
        let mut ids = BTreeSet::new();
        for order in ["asc", "desc"] {
            let text = format!("select id from ValidPaths not indexed order by id {order}");
            // The numbers before an error count.
            let _: Result<(), StoreError> = self.query("read the rows of", &text, |query| {
                let mut rows = query.query(())?;
                while let Some(row) = rows.next()? {
                    ids.insert(row.get(0)?);
                }
                Ok(())
            });
        }
        ids
    }

    fn read_row(&self, id: i64) -> Result<Option<PathRow>, StoreError> {
        // Without the indexes, which may be damaged.
        let text = format!(
            "select {COLUMNS}, r.reference, t.path from ValidPaths v not indexed \
             left join Refs r on r.referrer = v.id left join ValidPaths t on t.id = r.reference \
             where v.id = ?1"
        );
        self.query("read a row of", &text, |query| {
            let (mut found, mut rows) = (Vec::new(), query.query([id])?);
            while let Some(row) = rows.next()? {
                PathRow::read_joined(row, &mut found)?;
            }
            Ok(found.pop())
        })
    }
}

impl StoreError {
    /// Whether the database is lost or damaged, so that only a new one helps.
    pub(crate) fn is_damaged_database(&self) -> bool {
        match self {
            StoreError::NoTables { .. } | StoreError::ForeignDatabase(_) => true,
            StoreError::Database { source, .. } => match source.sqlite_error_code() {
                Some(code) => [
                    ErrorCode::DatabaseCorrupt,
                    ErrorCode::NotADatabase,
                    // The disk cannot read a part of it.
                    ErrorCode::SystemIoFailure,
                    // A table or a column is missing.
                    ErrorCode::Unknown,
                ]
                .contains(&code),
                None => true,
            },
            StoreError::Schema { found, .. } => found.parse::<u64>().is_err(),
            _ => false,
        }
    }
}
