//! A store as a source: queries to its database, its roots, and the NARs of its paths.

use std::ops::ControlFlow;
use std::path::PathBuf;

use floe_format::{Derivation, DrvOutput, HashPart, PathInfo, Realisation, StorePath};

use crate::db::{DamagedRow, Database, LockedDatabase};
use crate::disk::{StoreLayout, read_derivation};
use crate::error::StoreError;
use crate::locks::LockWait;
use crate::open_store::OpenStore;
use crate::roots::{FailedRoots, FoundRoots, RootSearch, RuntimeRoots};
use crate::tree;

/// A store opened for reading. Several threads may share it.
#[derive(Debug)]
pub struct StoreReader {
    store: OpenStore,
}

impl StoreReader {
    /// Opens an existing store.
    ///
    /// Errors: [`StoreError::NoStore`], [`StoreError::Schema`], and those of the system and of
    /// SQLite.
    pub fn open(layout: StoreLayout) -> Result<StoreReader, StoreError> {
        StoreReader::open_with(layout, LockWait::default())
    }

    /// Opens an existing store. Queries wait for a locked database as `lock_wait` says.
    ///
    /// Errors: also [`StoreError::Interrupted`].
    pub fn open_with(layout: StoreLayout, lock_wait: LockWait) -> Result<StoreReader, StoreError> {
        let store = OpenStore::for_reading(layout, lock_wait)?;
        Ok(StoreReader { store })
    }

    /// How the reader waits for locks.
    pub(crate) fn lock_wait(&self) -> &LockWait {
        &self.store.lock_wait
    }

    /// The directories of the store.
    pub fn layout(&self) -> &StoreLayout {
        &self.store.layout
    }

    /// Returns the registered information about a path, or `None` if the path is not valid.
    ///
    /// Errors: also [`StoreError::InvalidRow`] if its row does not parse.
    pub fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        self.database().path_info(path)
    }

    /// Whether a path is valid. Its row need not parse.
    pub fn is_valid(&self, path: &StorePath) -> Result<bool, StoreError> {
        self.database().is_valid(path)
    }

    /// Returns the references of a path, or `None` if the path is not valid. The other columns of
    /// its row need not parse.
    pub fn references(&self, path: &StorePath) -> Result<Option<Vec<StorePath>>, StoreError> {
        self.database().references(path)
    }

    /// Returns the valid path with this hash part.
    pub fn query_path_from_hash_part(
        &self,
        hash_part: HashPart,
    ) -> Result<Option<StorePath>, StoreError> {
        self.database().query_path_from_hash_part(hash_part)
    }

    /// Returns the rows that do not parse and that the queries for many paths have left out until
    /// now.
    pub fn skipped_rows(&self) -> Vec<DamagedRow> {
        self.database().skipped_rows()
    }

    /// Returns all valid paths, sorted by name. Leaves out rows whose paths do not parse.
    pub fn valid_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        self.database().valid_paths()
    }

    /// Returns the valid paths that do not exist on disk, sorted by name.
    ///
    /// Errors: those of the database.
    pub fn vanished_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        let mut paths = self.valid_paths()?;
        paths.retain(|path| self.real_path(path).symlink_metadata().is_err());
        Ok(paths)
    }

    /// Returns the valid paths whose whole rows parse, sorted by name.
    pub fn readable_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        self.database().readable_paths()
    }

    /// Calls `visit` with what is registered about each valid path, sorted by name, until it
    /// breaks. Leaves out rows that do not parse. Needs little memory in any store.
    ///
    /// Errors: those of the database.
    pub fn for_each_info(
        &self,
        visit: &mut dyn FnMut(PathInfo) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.database().for_each_info(visit)
    }

    /// Returns the number of the newest registration; 0 if there is none. Later registrations have
    /// larger numbers.
    pub fn newest_registration(&self) -> Result<i64, StoreError> {
        self.database().newest_row()
    }

    /// Returns the valid paths that were registered after the one with a number, in this order,
    /// with their own numbers.
    pub fn valid_paths_after(&self, number: i64) -> Result<Vec<(i64, StorePath)>, StoreError> {
        self.database().valid_paths_after(number)
    }

    /// Returns the closure of some paths, sorted by name: the paths, their references, and so on.
    /// Leaves out paths that are not valid, and rows that do not parse.
    pub fn closure(&self, roots: &[StorePath]) -> Result<Vec<PathInfo>, StoreError> {
        self.database().closure(roots)
    }

    /// Returns the paths of a closure, in any order. Their rows need not parse.
    pub fn closure_paths(&self, roots: &[StorePath]) -> Result<Vec<StorePath>, StoreError> {
        self.database().closure_paths(roots)
    }

    /// Returns the valid paths that refer to a path.
    pub fn referrers(&self, path: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        self.database().referrers(path)
    }

    /// Reads a derivation of the store, which need not be valid. Follows no symbolic link.
    ///
    /// Errors: those of the file, and [`StoreError::Derivation`].
    pub fn derivation(&self, path: &StorePath) -> Result<Derivation, StoreError> {
        read_derivation(self.layout(), path)
    }

    /// Returns the known paths of the outputs of a valid derivation, which need not be valid.
    pub fn derivation_outputs(&self, derivation: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        self.database().derivation_outputs(derivation)
    }

    /// Returns the valid derivations with an output of this path, which need not be valid.
    pub fn valid_derivers(&self, output: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        self.database().valid_derivers(output)
    }

    /// Returns the realisation of an output.
    pub fn realisation(&self, id: &DrvOutput) -> Result<Option<Realisation>, StoreError> {
        self.database().realisation(id)
    }

    /// Finds all roots: links, temporary roots, and the files that processes use. Changes nothing.
    ///
    /// Errors: those of the database, of the directories of roots, and of the roots daemon.
    pub fn find_roots(&self, runtime_roots: RuntimeRoots) -> Result<FoundRoots, StoreError> {
        self.root_search(&self.database(), runtime_roots, FailedRoots::Skip)
            .find_all()
    }

    /// Finds the roots that are links in `gcroots` and `profiles`, and those outside that these
    /// name.
    ///
    /// Errors: those of the database, and those of the directories of roots.
    pub fn find_links(&self) -> Result<FoundRoots, StoreError> {
        self.root_search(&self.database(), RuntimeRoots::Proc, FailedRoots::Skip)
            .find_links()
    }

    /// Returns a search that changes nothing.
    pub(crate) fn root_search<'a>(
        &'a self,
        database: &'a Database,
        runtime_roots: RuntimeRoots,
        failed_roots: FailedRoots,
    ) -> RootSearch<'a> {
        RootSearch {
            layout: self.layout(),
            database,
            runtime_roots,
            removes_stale: false,
            failed_roots,
        }
    }

    /// The place of a path on disk.
    pub fn real_path(&self, path: &StorePath) -> PathBuf {
        self.layout().real_path(path)
    }

    /// Writes the NAR of a path to `sink`, in chunks.
    pub fn dump<E: From<StoreError>>(
        &self,
        path: &StorePath,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        tree::dump_path(&self.layout().real_path(path), sink)
    }

    pub(crate) fn database(&self) -> LockedDatabase<'_> {
        self.store.database()
    }
}
