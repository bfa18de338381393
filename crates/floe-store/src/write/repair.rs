//! Valid paths whose contents were lost: records them, and replaces their trees.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

use floe_format::{PathInfo, StorePath};
use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use rustix::io::Errno;

use super::register::{RegisterOutcome, StagedPath};
use super::sync_record::{SyncRecord, lock_record};
use super::writer::StoreWriter;
use crate::db::{DamagedRow, Registration};
use crate::disk::mount_id::check_no_mounts;
use crate::error::{IoContext as _, StoreError};
use crate::locks::PathLock;
use crate::query::Damage;
use crate::tree::replace_tree;

impl StoreWriter {
    /// Records valid paths whose contents are damaged. The next writer of the store, also in a
    /// later run, reports them as missing until they are registered again.
    ///
    /// Errors: those of the system, and [`StoreError::Interrupted`].
    pub fn record_damaged(&self, paths: &[(StorePath, Damage)]) -> Result<(), StoreError> {
        let layout = self.layout();
        let _lock = lock_record(layout, &self.store.lock_wait)?;
        let mut record = SyncRecord::read(layout)?.unwrap_or_default();
        let names = paths.iter().map(|(path, _)| path.clone());
        record.damaged.extend(names);
        record.write(layout)?;
        self.damaged.lock().extend(paths.iter().cloned());
        Ok(())
    }

    /// Returns the damage of a path; `None` if the path is not valid or not known to be damaged.
    pub fn damage_of(&self, path: &StorePath) -> Option<Damage> {
        self.damaged.lock().get(path).copied()
    }

    /// Whether any path of the store is known to be damaged.
    pub fn has_damaged(&self) -> bool {
        !self.damaged.lock().is_empty()
    }

    /// Registers the size of the NAR of a valid path whose contents have the right hash.
    pub fn set_nar_size(&self, path: &StorePath, nar_size: u64) -> Result<(), StoreError> {
        self.database().set_nar_size(path, nar_size)
    }

    /// Removes the rows of the database that describe no path of this store, and returns them. A
    /// row stays if a valid path refers to it.
    pub fn remove_meaningless_rows(&self) -> Result<Vec<DamagedRow>, StoreError> {
        self.database().remove_meaningless_rows()
    }

    /// Removes the rows of valid paths whose files are gone, and returns these paths. A row stays
    /// if a valid path refers to it, or if another process has locked the path.
    pub fn remove_vanished(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, StoreError> {
        let mut removed = Vec::new();
        loop {
            let before = removed.len();
            for path in paths {
                // A path may be free after the removal of its last referrer.
                if !removed.contains(path) && self.remove_row_of_vanished(path)? {
                    removed.push(path.clone());
                }
            }
            if removed.len() == before {
                break;
            }
        }
        self.record_repaired(&removed)?;
        Ok(removed)
    }

    fn remove_row_of_vanished(&self, path: &StorePath) -> Result<bool, StoreError> {
        let Some(_lock) = PathLock::try_acquire(self.layout(), path)? else {
            return Ok(false);
        };
        let found = fs::symlink_metadata(self.layout().real_path(path));
        if !found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(false);
        }
        let Some(row) = self.database().row_of(path)? else {
            return Ok(false);
        };
        let removed = self.database().delete(&[(row, path)])?;
        Ok(removed.into_iter().all(|it| it))
    }

    /// Replaces the damaged paths of a batch. Returns the other paths.
    pub(crate) fn repair_batch(
        &self,
        batch: Vec<StagedPath>,
        outcome: &mut RegisterOutcome,
    ) -> Result<Vec<StagedPath>, StoreError> {
        if !self.has_damaged() {
            return Ok(batch);
        }
        let (mut others, mut repaired) = (Vec::new(), Vec::new());
        for staged in batch {
            let path = staged.info.path.clone();
            if self.damage_of(&path).is_none() || !self.database().is_valid(&path)? {
                others.push(staged);
                continue;
            }
            match self.repair(staged) {
                Ok(Ok(())) => repaired.push(path),
                Ok(Err(busy)) => outcome.busy.push(busy),
                Err(error) => outcome.refuse(&path, error)?,
            }
        }
        self.record_repaired(&repaired)?;
        outcome.valid.extend(repaired);
        Ok(others)
    }

    /// Exchanges the tree of a valid path for a new one, and updates its row. Returns the path if
    /// another process has locked it.
    fn repair(&self, mut staged: StagedPath) -> Result<Result<(), StagedPath>, StoreError> {
        let path = &staged.info.path;
        let Some(_lock) = PathLock::try_acquire(self.layout(), path)? else {
            return Ok(Err(staged));
        };
        let has_damaged_row = !self.database().damaged_rows_of(path)?.is_empty();
        if has_damaged_row && !self.missing_references(&staged.info)?.is_empty() {
            // The references may be in the same batch.
            return Ok(Err(staged));
        }
        let place = self.layout().real_path(path);
        check_no_mounts(&place)?;
        let is_exchanged = exchange(staged.tree.location(), &place)?;
        if !is_exchanged {
            let renamed = staged.tree.rename_to(place.clone());
            renamed.io_context("rename a tree to", &place)?;
        }
        if has_damaged_row {
            self.replace_row(&staged.info)?
        } else {
            self.database().update(&staged.info)?
        }
        if is_exchanged {
            // Removes the old tree.
            drop(staged)
        } else {
            staged.tree.detach()
        }
        Ok(Ok(()))
    }

    fn missing_references(&self, info: &PathInfo) -> Result<BTreeSet<StorePath>, StoreError> {
        let references: Vec<StorePath> = info.references.iter().cloned().collect();
        Ok(self.query_missing(&references)?.into_iter().collect())
    }

    /// Replaces all that is registered about a path whose row does not parse.
    fn replace_row(&self, info: &PathInfo) -> Result<(), StoreError> {
        let outputs = match self.derivations.outputs(self.layout(), info) {
            // The contents contradict the name, so they tell no outputs.
            Err(StoreError::Derivation { .. }) => Vec::new(),
            outputs => outputs?,
        };
        if self.database().replace(&Registration { info, outputs })? {
            return Ok(());
        }
        // A collector that ignores temporary roots has deleted a reference just now.
        let missing = self.missing_references(info)?;
        let path = info.path.clone();
        Err(StoreError::MissingReferences { path, missing })
    }

    /// Removes paths from the record when their new contents are on disk.
    fn record_repaired(&self, paths: &[StorePath]) -> Result<(), StoreError> {
        if paths.is_empty() {
            return Ok(());
        }
        // The old trees may have left damaged files in `.links`.
        self.has_suspect_links.store(true, Ordering::Relaxed);
        let layout = self.layout();
        syncfs(&self.store.directory).io_context("sync", &layout.real_store_dir)?;
        let _lock = lock_record(layout, &self.store.lock_wait)?;
        if let Some(mut record) = SyncRecord::read(layout)? {
            paths
                .iter()
                .for_each(|path| _ = record.damaged.remove(path));
            record.write(layout)?;
        }
        let mut damaged = self.damaged.lock();
        paths.iter().for_each(|path| _ = damaged.remove(path));
        Ok(())
    }
}

/// Exchanges two trees, in one step if the file system can. Returns `false` if there is nothing at
/// `place` any more. The path stays recorded as damaged until its row is written, so a tree that a
/// killed process has replaced in part does not count as valid.
fn exchange(new: &Path, place: &Path) -> Result<bool, StoreError> {
    match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        // An overlay file system answers XDEV for a directory of a lower layer.
        Err(Errno::INVAL | Errno::NOSYS | Errno::XDEV) => {
            replace_tree(new, place)?;
            Ok(true)
        }
        Err(error) => Err(error).io_context("replace", place),
    }
}
