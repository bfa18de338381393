//! A store as a source: questions to its database, and the NARs of its paths.

use std::path::PathBuf;
use std::sync::Mutex;

use floe_format::{PathInfo, StorePath};

use crate::db::{BusyPolicy, Database, LockedDatabase};
use crate::error::StoreError;
use crate::layout::StoreLayout;
use crate::locks::LockWait;
use crate::tree;

/// A store that is only read. May be shared between threads.
#[derive(Debug)]
pub struct StoreReader {
    layout: StoreLayout,
    database: Mutex<Database>,
    lock_wait: LockWait,
}

impl StoreReader {
    /// Opens an existing store.
    ///
    /// Errors: [`StoreError::NoStore`], [`StoreError::Schema`], or what the system and SQLite say.
    pub fn open(layout: StoreLayout) -> Result<StoreReader, StoreError> {
        StoreReader::open_with(layout, LockWait::default())
    }

    /// The same, with a way of one's own to wait for those who lock the database.
    ///
    /// Errors: also [`StoreError::Interrupted`].
    pub fn open_with(layout: StoreLayout, lock_wait: LockWait) -> Result<StoreReader, StoreError> {
        let scope = lock_wait.enter_scope();
        let (database, _) = Database::open_for_reading(&layout, BusyPolicy::CurrentScope)?;
        drop(scope);
        Ok(StoreReader {
            layout,
            database: Mutex::new(database),
            lock_wait,
        })
    }

    /// Where the store's parts are.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// What the database knows of a path; `None` if it is not valid.
    pub fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        self.database().path_info(path)
    }

    /// The valid path with that hash part.
    pub fn query_path_from_hash_part(
        &self,
        hash_part: &str,
    ) -> Result<Option<StorePath>, StoreError> {
        self.database().query_path_from_hash_part(hash_part)
    }

    /// Every valid path, in the order of their names.
    pub fn valid_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        self.database().valid_paths()
    }

    /// The closure of some valid paths: they, what they refer to, and so on, in the order of
    /// their names. A path that is not valid is left out.
    pub fn closure(&self, roots: &[StorePath]) -> Result<Vec<PathInfo>, StoreError> {
        self.database().closure(roots)
    }

    /// The valid paths that refer to a path.
    pub fn referrers(&self, path: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        self.database().referrers(path)
    }

    /// Where a path lies on disk.
    pub fn real_path(&self, path: &StorePath) -> PathBuf {
        self.layout.real_path(path)
    }

    /// Writes the NAR of a path to `sink`, in chunks.
    pub fn dump<E: From<StoreError>>(
        &self,
        path: &StorePath,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        tree::dump_path(&self.layout.real_path(path), sink)
    }

    pub(crate) fn database(&self) -> LockedDatabase<'_> {
        LockedDatabase::lock(&self.database, &self.lock_wait)
    }
}
