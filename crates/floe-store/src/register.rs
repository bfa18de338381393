//! The last step of an addition: trees into their places, rows into the database.
//!
//! 1. take each path's lock without waiting; who finds one taken comes back later;
//! 2. under the lock ask again: somebody else may have added the path meanwhile;
//! 3. look at the rows of the references again: an older collector may have taken one away;
//! 4. remove what lies at the place without a row, rename the tree there;
//! 5. write all rows in one transaction, in which each reference is looked up for the last time;
//!    then let the locks go.
//!
//! Locks are held for this step alone, so that two movers with overlapping closures never wait
//! for each other while either waits for the network.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use floe_format::derivation::{
    DERIVATION_LEN_MAX, Derivation, DerivationError, DerivationHashCache,
};
use floe_format::store_path::DERIVATION_EXTENSION;
use floe_format::{PathInfo, StorePath};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::db::{Database, Registration};
use crate::error::{IoContext, StoreError, is_system_wide};
use crate::locks::PathLock;
use crate::tree::{TemporaryTree, remove_tree};
use crate::writer::StoreWriter;

/// A path that is complete but for its registration: a tree whose bytes matched `info`.
#[derive(Debug)]
pub struct StagedPath {
    /// What is to be registered.
    pub info: PathInfo,
    /// Its tree.
    pub tree: TemporaryTree,
}

/// What became of the paths of one batch.
#[derive(Debug, Default)]
pub struct RegisterOutcome {
    /// Valid now, whether by this call or by somebody else's work.
    pub valid: Vec<StorePath>,
    /// Locked by another process at the moment, in the way of a collector, or more than this
    /// process can lock at once; to be tried again.
    pub busy: Vec<StagedPath>,
    /// Their references are not all valid (any more), with those that are missing.
    pub missing_references: Vec<(StagedPath, BTreeSet<StorePath>)>,
    /// Derivations whose contents contradict their names, and paths whose places or locks are
    /// taken by what cannot be taken away.
    pub refused: Vec<(StorePath, StoreError)>,
}

impl StoreWriter {
    /// Registers a batch of paths. References must be valid or in the batch.
    ///
    /// Errors: what SQLite says, and what the system says that concerns all paths, such as a full
    /// disk; then nothing of the batch is registered. Where the disk is not full, what of it could
    /// be registered is left, as by [`StoreWriter::keep_for_resume`].
    pub fn register(&self, batch: Vec<StagedPath>) -> Result<RegisterOutcome, StoreError> {
        let (mut outcome, mut renamed) = (RegisterOutcome::default(), Vec::new());
        let registered = self.register_batch(batch, &mut outcome, &mut renamed);
        let Err(error) = registered else {
            return Ok(outcome);
        };
        if !error.is_out_of_space() {
            // A tree that cannot be taken back is removed.
            let renamed = renamed.into_iter().filter_map(|path| path.rollback().ok());
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
        renamed: &mut Vec<RenamedTree>,
    ) -> Result<(), StoreError> {
        let mut database = self.database();
        let batch = self.lock_batch(&database, batch, outcome)?;
        let batch = retain_with_valid_references(&database, batch, outcome)?;
        // Who refers to those that are refused already has stayed behind as well.
        let refused_before = outcome.refused.len();
        for (staged, lock) in batch {
            let path = staged.info.path.clone();
            // Should anything fail from here on, dropping `renamed` removes the trees again.
            match RenamedTree::rename(self, staged, lock) {
                Ok(tree) => renamed.push(tree),
                Err(error) => outcome
                    .refused
                    .push((path.clone(), error.into_path_obstructed(&path)?)),
            }
        }
        let mut registrations = Vec::new();
        for path in &*renamed {
            match self.derivation_outputs(&path.info) {
                Ok(outputs) => registrations.push(Registration {
                    info: &path.info,
                    outputs,
                }),
                Err(error @ StoreError::Derivation { .. }) => {
                    outcome.refused.push((path.info.path.clone(), error));
                }
                Err(error) => return Err(error),
            }
        }
        let none_refused = outcome.refused.len() == refused_before;
        if none_refused && database.register(&registrations)? {
            drop(registrations);
            outcome
                .valid
                .extend(renamed.drain(..).map(RenamedTree::commit));
            return Ok(());
        }
        drop(registrations);
        // Rare: the others of a batch with one that is refused come back once more, alone, and so
        // do all when a reference has vanished since it was looked at.
        let refused: HashSet<StorePath> = outcome
            .refused
            .iter()
            .map(|(path, _)| path.clone())
            .collect();
        for path in renamed.drain(..) {
            if !refused.contains(&path.info.path) {
                outcome.busy.push(path.rollback()?);
            }
        }
        Ok(())
    }

    /// Takes the locks, in the order of the paths, and sorts out what is valid already.
    fn lock_batch(
        &self,
        database: &Database,
        mut batch: Vec<StagedPath>,
        outcome: &mut RegisterOutcome,
    ) -> Result<Vec<(StagedPath, PathLock)>, StoreError> {
        batch.sort_unstable_by(|a, b| a.info.path.cmp(&b.info.path));
        let mut locked = Vec::new();
        let mut batch = batch.into_iter();
        while let Some(staged) = batch.next() {
            let path = &staged.info.path;
            match self.lock_path(database, path) {
                Ok(LockOutcome::Valid) => outcome.valid.push(path.clone()),
                Ok(LockOutcome::Busy) => outcome.busy.push(staged),
                Ok(LockOutcome::Acquired(lock)) => locked.push((staged, lock)),
                // So many are locked already that no descriptor or no inode is left: the others
                // come next, and the last ones with them, for what is still to be opened.
                Err(error) if error.is_resource_exhaustion() && !locked.is_empty() => {
                    let spare = SPARE_LOCKS.min(locked.len() / 2);
                    let given_back = locked.drain(locked.len() - spare..);
                    outcome.busy.extend(given_back.map(|(staged, _)| staged));
                    outcome.busy.push(staged);
                    outcome.busy.extend(batch.by_ref());
                }
                Err(error) => {
                    let refused = (path.clone(), error.into_path_obstructed(path)?);
                    outcome.refused.push(refused);
                }
            }
        }
        Ok(locked)
    }

    fn lock_path(&self, database: &Database, path: &StorePath) -> Result<LockOutcome, StoreError> {
        let lock = match PathLock::try_acquire(self.layout(), path) {
            Ok(None) => return Ok(LockOutcome::Busy),
            Ok(Some(lock)) => lock,
            // Whoever holds the lock that cannot be opened, such as another user, may have added
            // the path before this process could.
            Err(_) if database.is_valid(path)? => return Ok(LockOutcome::Valid),
            Err(error) => return Err(error),
        };
        if database.is_valid(path)? {
            return Ok(LockOutcome::Valid);
        }
        match self.is_being_removed(path)? {
            true => Ok(LockOutcome::Busy),
            false => Ok(LockOutcome::Acquired(lock)),
        }
    }

    /// For a derivation: its outputs, after a check that their paths follow from its contents.
    fn derivation_outputs(&self, info: &PathInfo) -> Result<Vec<(String, StorePath)>, StoreError> {
        if !info.path.is_derivation() {
            return Ok(Vec::new());
        }
        let mut global_error = None;
        let mut read = |path: &StorePath| self.read_derivation(path, &mut global_error);
        let outputs = self.checked_outputs(&info.path, &mut read);
        outputs.map_err(|source| {
            global_error.unwrap_or_else(|| StoreError::Derivation {
                path: info.path.clone(),
                source,
            })
        })
    }

    fn checked_outputs(
        &self,
        path: &StorePath,
        read: &mut dyn FnMut(&StorePath) -> Result<Derivation, DerivationError>,
    ) -> Result<Vec<(String, StorePath)>, DerivationError> {
        let (dir, name) = (&self.layout().store_dir, derivation_name(path));
        let derivation = read(path)?;
        let mut cache = self
            .modulo_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = derivation.check_invariants(dir, name, &mut cache, read) {
            // What it remembers of a liar is worth nothing.
            *cache = DerivationHashCache::new();
            return Err(error);
        }
        let outputs = derivation.output_paths(dir, name).into_iter();
        Ok(outputs.filter_map(|(id, path)| Some((id, path?))).collect())
    }

    /// `global_error` becomes the error if it does not concern the derivation alone.
    fn read_derivation(
        &self,
        path: &StorePath,
        global_error: &mut Option<StoreError>,
    ) -> Result<Derivation, DerivationError> {
        let file = self.layout().real_path(path);
        let text = read_plain_file(&file).map_err(|source| {
            let reason = source.to_string();
            if is_system_wide(&source) {
                *global_error = Some(StoreError::Io {
                    action: "reading",
                    path: file.clone(),
                    source,
                });
            }
            let path = path.clone();
            DerivationError::Read { path, reason }
        })?;
        Derivation::parse(&text, &self.layout().store_dir, derivation_name(path))
    }
}

/// What came of the attempt to lock a path.
enum LockOutcome {
    Acquired(PathLock),
    /// Somebody else has it, or is about to remove it.
    Busy,
    Valid,
}

/// Reads a file of a tree that a stranger may have made: it is not followed where it leads
/// elsewhere, and no more of it is read than shows that it is too long.
fn read_plain_file(path: &Path) -> io::Result<Vec<u8>> {
    let not_plain = || io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file");
    // Not to wait for the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        // What the system says of a symbolic link that is not to be followed.
        Err(Errno::LOOP) => return Err(not_plain()),
        opened => opened?,
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(not_plain());
    }
    let mut text = Vec::new();
    let most = DERIVATION_LEN_MAX as u64 + 1;
    File::from(file).take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// What a derivation calls itself, and its outputs after.
fn derivation_name(path: &StorePath) -> &str {
    path.name()
        .strip_suffix(DERIVATION_EXTENSION)
        .unwrap_or(path.name())
}

/// Keeps the paths whose references are valid or kept themselves.
fn retain_with_valid_references(
    database: &Database,
    batch: Vec<(StagedPath, PathLock)>,
    outcome: &mut RegisterOutcome,
) -> Result<Vec<(StagedPath, PathLock)>, StoreError> {
    let mut kept: BTreeMap<StorePath, (StagedPath, PathLock)> = batch
        .into_iter()
        .map(|entry| (entry.0.info.path.clone(), entry))
        .collect();
    loop {
        let mut incomplete: Vec<(StorePath, BTreeSet<StorePath>)> = Vec::new();
        for (path, (staged, _)) in &kept {
            let mut missing = BTreeSet::new();
            for reference in &staged.info.references {
                if !kept.contains_key(reference) && !database.is_valid(reference)? {
                    missing.insert(reference.clone());
                }
            }
            if !missing.is_empty() {
                incomplete.push((path.clone(), missing));
            }
        }
        if incomplete.is_empty() {
            return Ok(kept.into_values().collect());
        }
        // Who refers to one that stays behind stays behind too: look again.
        for (path, missing) in incomplete {
            if let Some((staged, _)) = kept.remove(&path) {
                outcome.missing_references.push((staged, missing));
            }
        }
    }
}

/// A tree at its place whose row is not written yet. Dropping it removes the tree.
struct RenamedTree {
    info: PathInfo,
    tree: Option<TemporaryTree>,
    real_path: PathBuf,
    _lock: PathLock,
}

impl RenamedTree {
    fn rename(
        writer: &StoreWriter,
        mut path: StagedPath,
        lock: PathLock,
    ) -> Result<RenamedTree, StoreError> {
        let real_path = writer.layout().real_path(&path.info.path);
        // A tree without a row is the rest of somebody's accident; its contents are unknown.
        remove_tree(&real_path)?;
        path.tree
            .rename_to(&real_path)
            .io_context("moving into place", &real_path)?;
        Ok(RenamedTree {
            info: path.info,
            tree: Some(path.tree),
            real_path,
            _lock: lock,
        })
    }

    fn commit(mut self) -> StorePath {
        self.tree = None;
        self.info.path.clone()
    }

    /// Back beside its place.
    fn rollback(mut self) -> Result<StagedPath, StoreError> {
        let info = self.info.clone();
        // Where that fails it is still in its place, from which dropping this removes it.
        if let Some(tree) = &mut self.tree {
            tree.rename_from(&self.real_path)
                .io_context("moving back from its place", &self.real_path)?;
        }
        match self.tree.take() {
            Some(tree) => Ok(StagedPath { info, tree }),
            None => unreachable!("a renamed path keeps its tree until it is kept or taken back"),
        }
    }
}

impl Drop for RenamedTree {
    fn drop(&mut self) {
        // The transaction failed, so the path is not valid and nobody else may use it.
        if let Some(tree) = self.tree.take() {
            tree.remove_renamed(&self.real_path);
        }
    }
}

/// How many locks are given back where they have used up what there is: a derivation is read
/// through one descriptor, a directory that is in the way emptied through one for each level.
const SPARE_LOCKS: usize = 4;
