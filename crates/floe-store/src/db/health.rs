//! The state of a database file, as SQLite sees it.

use super::Database;
use crate::error::StoreError;

impl Database {
    /// Returns how changes are recorded: `wal` for a write-ahead log.
    pub(crate) fn journal_mode(&self) -> Result<String, StoreError> {
        self.query("examine", "pragma journal_mode", |query| {
            query.query_row((), |row| row.get(0))
        })
    }

    /// Reads the whole file, and returns its defects: at most [`DEFECTS_MAX`] of the structure, and
    /// rows that refer to missing ones.
    pub(crate) fn defects(&self) -> Result<Vec<String>, StoreError> {
        let check = format!("pragma quick_check({DEFECTS_MAX})");
        let mut defects: Vec<String> = self.query("check", &check, |query| {
            query.query_map((), |row| row.get(0))?.collect()
        })?;
        defects.retain(|defect| defect != "ok");
        let lost = self.query("check", "pragma foreign_key_check", |query| {
            let mut rows = query.query(())?;
            let mut lost = 0_u64;
            while rows.next()?.is_some() {
                lost += 1;
            }
            Ok(lost)
        })?;
        if lost > 0 {
            defects.push(format!("{lost} rows refer to paths that have no row"));
        }
        Ok(defects)
    }
}

/// The most defects that are listed.
const DEFECTS_MAX: usize = 10;
