//! The state of the database of a store, for a diagnosis.

use crate::db::{DamagedRow, DatabaseSpace};
use crate::error::StoreError;
use crate::locks::GcLock;

use super::StoreReader;

/// The state of a store.
#[derive(Clone, Debug)]
pub struct StoreHealth {
    /// The number of valid paths whose rows parse.
    pub paths: u64,
    /// The size of the database.
    pub space: DatabaseSpace,
    /// How the database records changes: `wal` for a write-ahead log.
    pub journal_mode: String,
    /// The defects of the file that SQLite finds.
    pub defects: Vec<String>,
    /// The rows that do not parse.
    pub damaged_rows: Vec<DamagedRow>,
    /// Whether a garbage collection is running.
    pub is_collecting: bool,
}

impl StoreReader {
    /// Examines the database. Reads all of it and changes nothing.
    ///
    /// Errors: those of the system and of SQLite.
    pub fn health(&self) -> Result<StoreHealth, StoreError> {
        let is_free = match GcLock::open_existing(self.layout())? {
            Some(lock) => lock.is_free()?,
            None => true,
        };
        let paths = self.readable_paths()?.len() as u64;
        let database = self.database();
        Ok(StoreHealth {
            paths,
            space: database.space()?,
            journal_mode: database.journal_mode()?,
            defects: database.defects()?,
            damaged_rows: database.skipped_rows(),
            is_collecting: !is_free,
        })
    }
}
