//! Valid paths whose contents were lost: finds them after a restart of the system, and replaces
//! them.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use floe_format::StorePath;
use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use rustix::io::Errno;

use crate::error::{IoContext as _, StoreError};
use crate::locks::{LockWait, PathLock, lock_mutex};
use crate::reader::StoreReader;
use crate::register::{RegisterOutcome, StagedPath};
use crate::sync_record::{SyncRecord, boot_id, lock_record};
use crate::tree::remove_tree;
use crate::verify::{ProblemCause, VerifyObserver};
use crate::writer::StoreWriter;

impl StoreWriter {
    /// Makes sure that a crash of the system after this call will be noticed, and looks for paths
    /// that an earlier crash has damaged.
    ///
    /// Errors: those of the system and of the database, and [`StoreError::Interrupted`].
    pub(crate) fn check_after_restart(&self) -> Result<(), StoreError> {
        let boot_id = boot_id();
        let last_row = self.database().last_row()?;
        let found = SyncRecord::read(self.layout())?;
        let is_same_boot = |record: &SyncRecord| Some(&record.boot_id) == boot_id.as_ref();
        let mut record = found.clone().unwrap_or_else(|| SyncRecord {
            synced_row: last_row,
            ..SyncRecord::default()
        });
        if found.as_ref().is_some_and(is_same_boot) {
            *lock_mutex(&self.damaged) = self.verify_paths(record.damaged.into_iter().collect())?;
            if record.synced_row < last_row {
                self.sync_in_background(last_row);
            }
            return Ok(());
        }
        let mut suspects = record.damaged.clone();
        suspects.extend(self.database().paths_after_row(record.synced_row)?);
        record.damaged = self.verify_paths(suspects.into_iter().collect())?;
        record.synced_row = record.synced_row.max(last_row);
        record.boot_id = boot_id.unwrap_or_default();
        let _lock = lock_record(self.layout(), &self.lock_wait)?;
        record.write(self.layout())?;
        *lock_mutex(&self.damaged) = record.damaged;
        Ok(())
    }

    /// Hashes paths, and returns those that are valid and damaged.
    fn verify_paths(&self, paths: Vec<StorePath>) -> Result<BTreeSet<StorePath>, StoreError> {
        if paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        let what = format!("the check of {} paths that may be damaged", paths.len());
        self.lock_wait.notify(&what);
        let reader = StoreReader::open_with(self.layout().clone(), self.lock_wait.clone())?;
        let verification = reader.verify(&paths, None, &Cancellation(&self.lock_wait))?;
        let problems = verification.problems.into_iter();
        let damaged = problems.filter(|it| !matches!(it.cause, ProblemCause::NotValid));
        let dir = &self.layout().store_dir;
        Ok(damaged.filter_map(|it| dir.parse(&it.path).ok()).collect())
    }

    /// Waits on another thread until the files of all rows up to `row` are on disk, and records it.
    /// If that fails, a later writer tries again.
    fn sync_in_background(&self, row: i64) {
        let (directory, layout) = (self.directory.clone(), self.layout().clone());
        let run = move || -> Result<(), StoreError> {
            syncfs(&directory).io_context("sync", &layout.real_store_dir)?;
            let _lock = lock_record(&layout, &LockWait::default())?;
            if let Some(mut record) = SyncRecord::read(&layout)?
                && record.synced_row < row
            {
                record.synced_row = row;
                record.write(&layout)?;
            }
            Ok(())
        };
        let thread = thread::Builder::new().name("floe-sync".into());
        // Without the thread, the record stays as it is.
        let _: std::io::Result<_> = thread.spawn(move || _ = run());
    }

    /// Records valid paths whose contents are damaged. The next writer of the store, also in a
    /// later run, reports them as missing until they are registered again.
    ///
    /// Errors: those of the system, and [`StoreError::Interrupted`].
    pub fn record_damaged(&self, paths: &[StorePath]) -> Result<(), StoreError> {
        let layout = self.layout();
        let _lock = lock_record(layout, &self.lock_wait)?;
        let mut record = SyncRecord::read(layout)?.unwrap_or_default();
        record.damaged.extend(paths.iter().cloned());
        record.write(layout)?;
        lock_mutex(&self.damaged).extend(paths.iter().cloned());
        Ok(())
    }

    /// Returns those of `paths` that are valid and whose contents are damaged.
    pub fn query_damaged(&self, paths: &[StorePath]) -> Vec<StorePath> {
        let damaged = lock_mutex(&self.damaged);
        let found = paths.iter().filter(|path| damaged.contains(*path));
        found.cloned().collect()
    }

    /// Whether any path of the store is known to be damaged.
    pub fn has_damaged(&self) -> bool {
        !lock_mutex(&self.damaged).is_empty()
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
            let is_damaged = lock_mutex(&self.damaged).contains(&path);
            if !is_damaged || !self.database().is_valid(&path)? {
                others.push(staged);
                continue;
            }
            match self.repair(staged)? {
                Ok(()) => repaired.push(path),
                Err(busy) => outcome.busy.push(busy),
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
        let place = self.layout().real_path(path);
        let is_exchanged = exchange(staged.tree.location(), &place)?;
        if !is_exchanged {
            let renamed = staged.tree.rename_to(place.clone());
            renamed.io_context("rename a tree to", &place)?;
        }
        self.database().update(&staged.info)?;
        match is_exchanged {
            // Removes the old tree.
            true => drop(staged),
            false => staged.tree.detach(),
        }
        Ok(Ok(()))
    }

    /// Removes paths from the record when their new contents are on disk.
    fn record_repaired(&self, paths: &[StorePath]) -> Result<(), StoreError> {
        if paths.is_empty() {
            return Ok(());
        }
        let layout = self.layout();
        syncfs(&self.directory).io_context("sync", &layout.real_store_dir)?;
        let _lock = lock_record(layout, &self.lock_wait)?;
        if let Some(mut record) = SyncRecord::read(layout)? {
            paths
                .iter()
                .for_each(|path| _ = record.damaged.remove(path));
            record.write(layout)?;
        }
        let mut damaged = lock_mutex(&self.damaged);
        paths.iter().for_each(|path| _ = damaged.remove(path));
        Ok(())
    }
}

/// Exchanges two trees in one step. Returns `false` if there is nothing at `place` any more, after
/// the removal of the tree there if the file system cannot exchange.
fn exchange(new: &Path, place: &Path) -> Result<bool, StoreError> {
    match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(Errno::INVAL | Errno::NOSYS) => {
            remove_tree(place)?;
            Ok(false)
        }
        Err(error) => Err(error).io_context("replace", place),
    }
}

/// Ends a verification at an interrupt.
struct Cancellation<'a>(&'a LockWait);

impl VerifyObserver for Cancellation<'_> {
    fn should_continue(&self) -> bool {
        self.0.check_cancelled().is_ok()
    }
}
