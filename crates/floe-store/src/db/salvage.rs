//! Reads the rows of a damaged database that can still be read.

use floe_format::PathInfo;
use rusqlite::ErrorCode;

use super::Database;
use super::path_row::{COLUMNS, PathRow};
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

    /// Returns what is registered about the paths whose rows can be read, in no fixed order. Their
    /// references may be incomplete, because a damaged page takes its rows with it.
    pub(crate) fn salvage(&self) -> Vec<PathInfo> {
        let rows = (1..=self.last_readable_row()).filter_map(|row| self.read_row(row).ok()?);
        rows.filter_map(|row| self.parse_row(row).ok()).collect()
    }

    /// The number of the last row, as far as that can be read.
    fn last_readable_row(&self) -> i64 {
        let counts = [
            "select seq from sqlite_sequence where name = 'ValidPaths'",
            "select max(id) from ValidPaths",
        ];
        let counts = counts.iter().filter_map(|text| {
            let found = self.query("read the rows of", text, |query| {
                query.query_row((), |row| row.get::<_, i64>(0))
            });
            found.ok()
        });
        counts.max().unwrap_or_default().min(ROW_MAX)
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

/// More rows than any store has. The number of a damaged row may be larger.
const ROW_MAX: i64 = 10_000_000;
