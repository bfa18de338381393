//! The interface of a target: what a copy needs of a store or a binary cache to write to it.

use std::collections::BTreeSet;
use std::fmt::Debug;

use floe_format::{StoreDir, StorePath};

use crate::error::Error;
use crate::incoming_nar::IncomingNar;
use crate::planned_path::PlannedPath;
use crate::space::Space;

/// A store or a binary cache that receives paths.
///
/// A path is first *staged* by [`Target::receive`], on one of several workers, and then made valid
/// by [`Target::commit`], which the pipeline calls from one thread at a time. Staged objects belong
/// to the target; the pipeline knows store paths only. A target that registers by itself does all
/// its work in `receive` and reports in `commit` that the path is valid.
///
/// A new kind of target implements the first four methods. The defaults of the others suit a target
/// without garbage collection, local files and interrupted runs.
pub trait Target: Debug + Send + Sync {
    /// Returns the store directory of the target's paths.
    fn store_dir(&self) -> &StoreDir;

    /// Protects paths from garbage collection, and returns those that are missing, in their order.
    fn add_temp_roots_and_query_missing(
        &self,
        paths: &[StorePath],
    ) -> Result<Vec<StorePath>, Error>;

    /// Stages a path: writes its NAR with [`IncomingNar::write_to`]. Leaves nothing after an error.
    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error>;

    /// Makes staged paths valid. References come before their referrers in `batch`.
    ///
    /// Errors: those after which no other path can be committed. Nothing of the batch stays staged
    /// then.
    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error>;

    /// Whether paths need a trusted signature or a content address. A binary cache accepts all: its
    /// clients check signatures.
    fn requires_trust(&self) -> bool {
        true
    }

    /// Whether each worker keeps a core busy with encoding, so that more workers than cores would
    /// only need more memory.
    fn needs_core_per_worker(&self) -> bool {
        false
    }

    /// Returns the valid path with a hash part.
    fn query_path_from_hash_part(&self, hash_part: &str) -> Result<Option<StorePath>, Error> {
        let _ = hash_part;
        Ok(None)
    }

    /// Estimates the space that paths take, and looks up what is free for them.
    fn estimate_space(&self, items: &[PlannedPath]) -> Result<Option<Space>, Error> {
        let _ = items;
        Ok(None)
    }

    /// Stages a path from files of this machine. Returns `false` if there are none that are right.
    ///
    /// Errors: those that also fetching the path would meet.
    fn reuse_local_copy(&self, nar: &mut IncomingNar<'_>) -> Result<bool, Error> {
        let _ = nar;
        Ok(false)
    }

    /// Drops staged paths. Ignores paths that are not staged.
    fn discard(&self, paths: &[StorePath]) {
        let _ = paths;
    }

    /// Keeps staged paths for the next run, or drops them if the target cannot keep them. Returns
    /// how many were kept.
    fn keep_for_resume(&self, paths: &[StorePath]) -> usize {
        self.discard(paths);
        0
    }

    /// Whether an interrupted run has left a tree of the path.
    fn has_recovered(&self, path: &StorePath) -> bool {
        let _ = path;
        false
    }

    /// Removes what interrupted runs have left, except for wanted paths.
    fn discard_recovered(&self, is_wanted: &dyn Fn(&StorePath) -> bool) {
        let _ = is_wanted;
    }

    /// Waits for a garbage collection that was running when the temporary roots were added.
    fn wait_for_gc(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns those of `paths` that a garbage collection has deleted although they were valid
    /// before. Waits for the end of the collection.
    fn query_vanished(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, Error> {
        let _ = paths;
        Ok(Vec::new())
    }
}

/// What became of a batch of staged paths.
#[derive(Debug, Default)]
pub struct CommitOutcome {
    /// Valid now, whether by this call or by another process.
    pub valid: Vec<StorePath>,
    /// Still staged and to be committed again: another process holds them at the moment.
    pub busy: Vec<StorePath>,
    /// Still staged, with the references that are not valid.
    pub missing_references: Vec<(StorePath, BTreeSet<StorePath>)>,
    /// Not staged any more, with the cause.
    pub refused: Vec<(StorePath, Error)>,
}
