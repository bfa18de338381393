//! Registration, the last step of adding a path: moves trees into place and writes their rows.
//!
//! 1. Acquire each path lock without waiting. A path with a busy lock returns to the caller, which
//!    tries again later.
//! 2. Query the database again under the lock, because another process may have added the path.
//! 3. Check the rows of the references again, because an older collector may have deleted one.
//! 4. Remove a tree at the final place that has no row, and rename the new tree there.
//! 5. Write all rows in one transaction, which checks each reference a last time. On a full disk,
//!    the transaction has as many rows as there is space for, and the other paths return to the
//!    caller. Then release the locks.
//!
//! The locks are held only during this step. Two copies with overlapping closures therefore never
//! wait for each other's downloads.

use std::collections::{BTreeSet, HashSet};

use floe_format::{PathInfo, StorePath};

use super::writer::{Durability, StoreWriter};
use crate::db::{Database, Registration};
use crate::disk::mount_id::check_no_mounts;
use crate::error::{IoContext, StoreError};
use crate::locks::PathLock;
use crate::tree::{TemporaryTree, has_many_files, remove_tree, sync_tree};

/// A path that is complete on disk and not registered yet. The NAR of the tree matched `info`.
#[derive(Debug)]
pub struct StagedPath {
    /// The information to register.
    pub info: PathInfo,
    /// The complete tree under its temporary name.
    pub tree: TemporaryTree,
}

/// The outcome for each path of one batch.
#[derive(Debug, Default)]
pub struct RegisterOutcome {
    /// Paths that are valid now, registered by this call or by another process.
    pub valid: Vec<StorePath>,
    /// Paths to try again: another process holds the lock, a collector may still delete the old
    /// tree, this process has too many locks open, or the disk has no space for all rows at once.
    pub busy: Vec<StagedPath>,
    /// Paths whose references are not all valid, with the missing references.
    pub missing_references: Vec<(StagedPath, BTreeSet<StorePath>)>,
    /// Derivations whose contents contradict their names, and paths whose place or lock is blocked
    /// by a file that floe cannot remove.
    pub refused: Vec<(StorePath, StoreError)>,
}

impl RegisterOutcome {
    /// Records an error that concerns only `path`, and returns any other error.
    pub(crate) fn refuse(&mut self, path: &StorePath, error: StoreError) -> Result<(), StoreError> {
        let refused = error.into_path_obstructed(path)?;
        self.refused.push((path.clone(), refused));
        Ok(())
    }
}

/// A path with its lock. The lock is dropped last.
type LockedPath = (StagedPath, PathLock);

impl StoreWriter {
    /// Registers a batch of paths. Each reference must be valid or in the batch.
    ///
    /// Errors: those of SQLite, and those of the system that concern all paths, such as a full
    /// disk. After an error, no path of the batch is registered. Unless the disk is full, the trees
    /// that could have been registered stay on disk, as after [`StoreWriter::keep_for_resume`].
    pub fn register(&self, batch: Vec<StagedPath>) -> Result<RegisterOutcome, StoreError> {
        let (mut outcome, mut renamed) = (RegisterOutcome::default(), Vec::new());
        let registered = self.register_batch(batch, &mut outcome, &mut renamed);
        let Err(error) = registered else {
            return Ok(outcome);
        };
        if !error.is_out_of_space() {
            // A tree whose rollback fails is removed.
            let renamed = renamed.into_iter().filter_map(|path| roll_back(path).ok());
            let incomplete = outcome
                .missing_references
                .into_iter()
                .map(|(staged, _)| staged);
            let kept = renamed.chain(incomplete).chain(outcome.busy);
            self.keep_for_resume(kept.map(|staged| staged.tree));
        }
        Err(error)
    }

    fn register_batch(
        &self,
        batch: Vec<StagedPath>,
        outcome: &mut RegisterOutcome,
        renamed: &mut Vec<LockedPath>,
    ) -> Result<(), StoreError> {
        let batch = self.repair_batch(batch, outcome)?;
        let database = self.database();
        let batch = self.lock_batch(&database, batch, outcome)?;
        let batch = retain_with_valid_references(&database, batch, outcome)?;
        // `outcome.refused` already holds paths whose referrers `lock_batch` left out.
        let refused_before = outcome.refused.len();
        for (mut staged, lock) in batch {
            // If a later step fails, dropping `renamed` removes the trees again.
            match self.move_into_place(&mut staged) {
                Ok(()) => renamed.push((staged, lock)),
                Err(error) => outcome.refuse(&staged.info.path, error)?,
            }
        }
        let mut registrations = Vec::new();
        for (StagedPath { info, .. }, _) in &*renamed {
            match self.derivations.outputs(self.layout(), info) {
                Ok(outputs) => registrations.push(Registration { info, outputs }),
                Err(error @ StoreError::Derivation { .. }) => {
                    outcome.refused.push((info.path.clone(), error));
                }
                Err(error) => return Err(error),
            }
        }
        self.sync_before_commit(renamed)?;
        let none_refused = outcome.refused.len() == refused_before;
        let registered = if none_refused {
            database.register(&registrations)?
        } else {
            0
        };
        for (staged, _lock) in renamed.drain(..registered) {
            staged.tree.detach();
            outcome.valid.push(staged.info.path);
        }
        // Rare: a path was refused, a reference vanished after the check, or the disk has too
        // little space for one transaction. The caller tries the other paths again.
        let refused: HashSet<&StorePath> = outcome.refused.iter().map(|(path, _)| path).collect();
        for path in renamed.drain(..) {
            if !refused.contains(&path.0.info.path) {
                outcome.busy.push(roll_back(path)?);
            }
        }
        Ok(())
    }

    /// Waits until the trees are on disk, if a setting demands it.
    fn sync_before_commit(&self, renamed: &[LockedPath]) -> Result<(), StoreError> {
        let store = &self.layout().real_store_dir;
        let Durability {
            fsync_store_paths,
            sync_before_registering,
        } = self.durability;
        if renamed.is_empty() || !fsync_store_paths && !sync_before_registering {
            return Ok(());
        }
        let trees = renamed.iter().map(|(staged, _)| staged.tree.location());
        if !sync_before_registering && !has_many_files(trees.clone())? {
            for tree in trees {
                sync_tree(tree)?;
            }
            return rustix::fs::fsync(&self.store.directory).io_context("sync", store);
        }
        rustix::fs::syncfs(&self.store.directory).io_context("sync", store)
    }

    fn move_into_place(&self, staged: &mut StagedPath) -> Result<(), StoreError> {
        let place = self.layout().real_path(&staged.info.path);
        check_no_mounts(&place)?;
        // A tree without a row remains from an interrupted process. Its contents are unknown.
        remove_tree(&place)?;
        let renamed = staged.tree.rename_to(place.clone());
        renamed.io_context("rename a tree to", place)
    }

    /// Acquires the locks, and separates the paths that are valid already.
    fn lock_batch(
        &self,
        database: &Database,
        batch: Vec<StagedPath>,
        outcome: &mut RegisterOutcome,
    ) -> Result<Vec<LockedPath>, StoreError> {
        let mut locked = Vec::new();
        let mut batch = references_first(batch).into_iter();
        while let Some(staged) = batch.next() {
            let path = &staged.info.path;
            match self.lock_path(database, path) {
                Ok(LockOutcome::Valid) => outcome.valid.push(path.clone()),
                Ok(LockOutcome::Busy) => outcome.busy.push(staged),
                Ok(LockOutcome::Acquired(lock)) => locked.push((staged, lock)),
                // This process has no file descriptor or inode left for another lock. The rest
                // waits for the next call. So do a few paths that are locked already, because later
                // steps open files as well.
                Err(error) if error.is_resource_exhaustion() && !locked.is_empty() => {
                    let spare = SPARE_LOCKS.min(locked.len() / 2);
                    let given_back = locked.drain(locked.len() - spare..);
                    outcome.busy.extend(given_back.map(|(staged, _)| staged));
                    outcome.busy.push(staged);
                    outcome.busy.extend(batch.by_ref());
                }
                Err(error) => outcome.refuse(path, error)?,
            }
        }
        Ok(locked)
    }

    fn lock_path(&self, database: &Database, path: &StorePath) -> Result<LockOutcome, StoreError> {
        let lock = match PathLock::try_acquire(self.layout(), path) {
            Ok(None) => return Ok(LockOutcome::Busy),
            Ok(Some(lock)) => lock,
            // The process that holds the lock may run as another user and may have added the path.
            Err(_) if database.is_valid(path)? => return Ok(LockOutcome::Valid),
            Err(error) => return Err(error),
        };
        if database.is_valid(path)? {
            return Ok(LockOutcome::Valid);
        }
        if self.is_being_removed(path)? {
            Ok(LockOutcome::Busy)
        } else {
            Ok(LockOutcome::Acquired(lock))
        }
    }
}

/// Sorts a batch so that references come before their referrers. If the locks do not suffice for
/// the whole batch, the first paths can be registered without the others.
fn references_first(mut batch: Vec<StagedPath>) -> Vec<StagedPath> {
    batch.sort_unstable_by(|a, b| a.info.path.cmp(&b.info.path));
    let mut sorted = Vec::new();
    loop {
        let pending: HashSet<StorePath> = batch.iter().map(|it| it.info.path.clone()).collect();
        let is_pending = |info: &PathInfo| {
            let mut others = info.references.iter().filter(|path| **path != info.path);
            others.any(|path| pending.contains(path))
        };
        let len_before = sorted.len();
        let (referrers, next): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|it| is_pending(&it.info));
        sorted.extend(next);
        batch = referrers;
        // The paths of a circle remain.
        if sorted.len() == len_before {
            sorted.extend(batch);
            return sorted;
        }
    }
}

/// The result of an attempt to lock a path.
enum LockOutcome {
    Acquired(PathLock),
    /// Another process holds the lock, or a collector is about to remove the tree.
    Busy,
    Valid,
}

/// Keeps the paths whose references are all valid or kept as well, in their order.
fn retain_with_valid_references(
    database: &Database,
    mut batch: Vec<LockedPath>,
    outcome: &mut RegisterOutcome,
) -> Result<Vec<LockedPath>, StoreError> {
    loop {
        let paths: HashSet<StorePath> = batch
            .iter()
            .map(|(staged, _)| staged.info.path.clone())
            .collect();
        let mut complete = Vec::new();
        for (staged, lock) in batch {
            let mut missing = BTreeSet::new();
            for reference in &staged.info.references {
                if !paths.contains(reference) && !database.is_valid(reference)? {
                    missing.insert(reference.clone());
                }
            }
            if missing.is_empty() {
                complete.push((staged, lock))
            } else {
                outcome.missing_references.push((staged, missing))
            }
        }
        // A path that is left out may be a reference of other paths, so the check repeats.
        if complete.len() == paths.len() {
            return Ok(complete);
        }
        batch = complete;
    }
}

/// Moves a tree whose row was not written back to its temporary name, and releases its lock.
fn roll_back((mut staged, lock): LockedPath) -> Result<StagedPath, StoreError> {
    let place = staged.tree.location().to_path_buf();
    let moved = staged.tree.rename_from(&place);
    match moved.io_context("rename the tree at", place) {
        Ok(()) => Ok(staged),
        Err(error) => {
            // Dropping the tree removes it from its final place, which needs the lock.
            drop(staged);
            drop(lock);
            Err(error)
        }
    }
}

/// The number of locks to release when descriptors or inodes run out. Reading a derivation needs
/// one descriptor, and removing an old directory needs one for each level.
const SPARE_LOCKS: usize = 4;
