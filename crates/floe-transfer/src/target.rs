//! The interface of a target: the operations of a copy that write to a store or a binary cache.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use floe_format::{HashPart, PathInfo, Realisation, StoreDir, StorePath};

use crate::cache_inventory::CacheInventory;
use crate::error::Error;
use crate::incoming_nar::IncomingNar;
use crate::planned_path::PlannedPath;
use crate::signing::SigningOutcome;
use crate::space::Space;

/// A store or a binary cache that receives paths.
///
/// [`Target::receive`] *stages* a path, on one of several workers. [`Target::commit`] makes staged
/// paths valid; the pipeline calls it from one thread at a time, references first. Staged objects
/// belong to the target: the pipeline knows only store paths. A target that registers paths as it
/// receives them, as a daemon does, needs their references first
/// ([`TargetFacts::needs_references_first`]); its `commit` waits for the end of the registration.
/// One target serves one copy at a time.
///
/// A new kind of target implements the methods without defaults. The defaults of the others suit a
/// target without garbage collection, local files and interrupted runs.
pub trait Target: Debug + Send + Sync {
    /// Returns the store directory of the target's paths.
    fn store_dir(&self) -> &StoreDir;

    /// Returns how the pipeline treats the target.
    fn facts(&self) -> TargetFacts {
        TargetFacts::default()
    }

    /// Protects paths from garbage collection, and finds out which of them are missing.
    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error>;

    /// As [`Target::add_temp_roots_and_query_missing`], for paths that are whole closures. The
    /// caller needs no [`MissingPaths::unchecked_references`].
    fn query_missing_of_closures(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        self.add_temp_roots_and_query_missing(paths)
    }

    /// Tells the target that its clients have other sources for some paths, so that it can publish
    /// their referrers without them. The paths of an earlier call do not count any more.
    fn assume_present(&self, _paths: &[StorePath]) {}

    /// Tells the target that some present paths are damaged, with the reasons, although it may not
    /// notice itself. The copy replaces them.
    fn replace(&self, _damaged: Vec<(StorePath, String)>) {}

    /// Returns the valid path with a hash part.
    fn query_path_from_hash_part(&self, _hash_part: HashPart) -> Result<Option<StorePath>, Error> {
        Ok(None)
    }

    /// Estimates the space that paths need, and looks up the free space.
    fn estimate_space(&self, _planned_paths: &[Arc<PlannedPath>]) -> Result<Option<Space>, Error> {
        Ok(None)
    }

    /// Prepares the target for new paths, once the plan of the copy is complete, or before the
    /// first early path. A new cache comes into being here, so that a refused copy leaves none.
    fn prepare(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Stages a path: writes its NAR with [`IncomingNar::write_to`]. Leaves nothing after an error.
    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error>;

    /// Makes staged paths valid. References come before their referrers in `batch`.
    ///
    /// The outcome lists every path of the batch exactly once, unless it has an
    /// [`end`](CommitOutcome::end).
    ///
    /// Errors: those after which no other path can be committed. Then nothing of the batch stays
    /// staged.
    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error>;

    /// Drops staged paths. Ignores paths that are not staged.
    fn discard(&self, _paths: &[StorePath]) {}

    /// Returns the operations with files of this machine, if the target has them.
    fn as_resumable(&self) -> Option<&dyn ResumableTarget> {
        None
    }

    /// Returns the operations beside a garbage collector, if one may delete the target's paths
    /// during a copy.
    fn as_collected(&self) -> Option<&dyn CollectedTarget> {
        None
    }

    /// Returns the operations that sign present paths, if the target has keys of its own.
    fn as_signing(&self) -> Option<&dyn SigningTarget> {
        None
    }

    /// Returns the operation that adds signatures to present paths, if the target has it.
    fn as_signature_target(&self) -> Option<&dyn SignatureTarget> {
        None
    }

    /// Returns the list of the objects of a binary cache, if the target is one.
    fn as_inventory(&self) -> Option<&dyn CacheInventory> {
        None
    }

    /// Returns the registration of realisations, if the target keeps them.
    fn as_realisation_target(&self) -> Option<&dyn RealisationTarget> {
        None
    }

    /// Returns the registration of GC roots, if another process does that for the target.
    fn as_root_registry(&self) -> Option<&dyn RootRegistry> {
        None
    }
}

/// How the pipeline treats a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetFacts {
    /// How many paths a commit has at most. In a database, a larger batch was not faster, and would
    /// hold more locks. A target behind a network needs a round trip for each level of references
    /// in a batch, so large batches are faster there.
    pub batch_len_max: usize,
    /// Whether the copy queries the target for whole closures at once, if the only source knows
    /// them: the target has to look at each path anyway, or each query costs a round trip. A local
    /// store has the references of its paths, so the copy stops at those.
    pub wants_whole_closures: bool,
    /// Whether the target may stage paths while the copy still resolves the closure, after
    /// [`Target::prepare`].
    pub receives_early: bool,
    /// Whether [`Target::receive`] may only get a path after all of its references.
    pub needs_references_first: bool,
    /// Whether the copy only verifies the paths. A failed path then does not take its referrers
    /// with it, and the contents of a path are read although its signatures are refused.
    pub keeps_nothing: bool,
    /// Whether each worker keeps a core busy with encoding, so that more workers than cores would
    /// only need more memory.
    pub needs_core_per_worker: bool,
    /// Whether paths need a trusted signature or a content address. A binary cache accepts all: its
    /// clients check signatures.
    pub requires_trust: bool,
}

impl Default for TargetFacts {
    /// The facts of a store on this machine.
    fn default() -> TargetFacts {
        TargetFacts {
            batch_len_max: 64,
            wants_whole_closures: false,
            receives_early: false,
            needs_references_first: false,
            keeps_nothing: false,
            needs_core_per_worker: false,
            requires_trust: true,
        }
    }
}

/// A target that stages paths from files of this machine: those of an interrupted run, or those of
/// another store.
pub trait ResumableTarget {
    /// Stages a path from files of this machine. Returns `false` if no files match its NAR hash.
    ///
    /// Errors: those that would also fail a download, such as a full disk.
    fn reuse_local_copy(&self, nar: &mut IncomingNar<'_>) -> Result<bool, Error>;

    /// Whether the target has kept the path, from an interrupted run.
    fn has_recovered(&self, path: &StorePath) -> bool;

    /// Deletes recovered trees, except those of wanted paths.
    fn discard_recovered(&self, is_wanted: &dyn Fn(&StorePath) -> bool);

    /// Keeps staged paths for the next run. Returns the number of kept paths.
    fn keep_for_resume(&self, paths: &[StorePath]) -> usize;
}

/// A target whose paths a garbage collector may delete during a copy, despite their temporary
/// roots.
pub trait CollectedTarget {
    /// Waits for a garbage collection that was running when the temporary roots were added.
    fn wait_for_gc(&self) -> Result<(), Error>;

    /// Returns those of `paths` that a garbage collection has deleted although they were valid
    /// before. Waits for the end of the collection.
    fn query_vanished(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, Error>;
}

/// A target that signs paths with keys of its own.
pub trait SigningTarget {
    /// Returns the present paths that this copy has met and that lack a signature by a key.
    fn unsigned_paths(&self) -> Vec<StorePath>;

    /// Signs those of [`unsigned_paths`](SigningTarget::unsigned_paths) whose facts in the target
    /// are those in `infos`, the paths of the source.
    ///
    /// Errors: those of the target; [`Error::Cancelled`].
    fn add_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error>;

    /// Signs those of `paths` that are present and lack a signature by a key.
    ///
    /// Errors: those of the target; [`Error::Cancelled`].
    fn sign(&self, paths: &[StorePath]) -> Result<SigningOutcome, Error>;
}

/// A target whose paths get the signatures that others have made.
pub trait SignatureTarget {
    /// Adds the signatures of `infos` to the paths of the target. A path gets none if its facts in
    /// the target are others ([`PathInfo::signed_difference`]).
    ///
    /// Errors: those of the target; [`Error::Cancelled`].
    fn merge_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error>;
}

/// A target that keeps realisations.
pub trait RealisationTarget {
    /// Registers realisations of valid paths, dependencies first, without a check of signatures.
    ///
    /// Errors: those of the target; a store refuses another path for an output that has one.
    fn register_realisations(&self, realisations: &[Realisation]) -> Result<(), Error>;
}

/// A target whose GC roots another process registers, such as a daemon.
pub trait RootRegistry {
    /// Registers a link on this machine to a path as an indirect root.
    fn add_indirect_root(&self, link: &Path, path: &StorePath) -> Result<(), Error>;
}

/// The paths that a target lacks, of those for which it was queried.
#[derive(Debug, Default)]
pub struct MissingPaths {
    /// The missing paths, in the order of the query.
    pub paths: Vec<StorePath>,
    /// The references of the present paths, if the target may lack some of them. A store contains
    /// whole closures unless a crash has damaged it, but a binary cache may have lost a part.
    pub unchecked_references: Vec<StorePath>,
    /// Those of `paths` whose objects are there and cannot be used, with the reason. The copy
    /// replaces the objects.
    pub damaged: Vec<(StorePath, String)>,
}

impl From<Vec<StorePath>> for MissingPaths {
    /// The missing paths of a target that contains whole closures.
    fn from(paths: Vec<StorePath>) -> MissingPaths {
        MissingPaths {
            paths,
            ..MissingPaths::default()
        }
    }
}

/// The outcome of a commit, for each path of the batch.
#[derive(Debug, Default)]
pub struct CommitOutcome {
    /// Valid now, by this call or by another process.
    pub valid: Vec<StorePath>,
    /// How many of them clients refuse, because they have neither a signature nor a content
    /// address. A target that is a store needs none.
    pub unsigned: u64,
    /// The sizes of the NAR files that a cache has got for them, in bytes.
    pub sent_bytes: u64,
    /// Still staged: another process has locked them. The pipeline commits them again.
    pub busy: Vec<StorePath>,
    /// Still staged, with the references that are not valid.
    pub missing_references: Vec<(StorePath, BTreeSet<StorePath>)>,
    /// Not staged any more, with the cause.
    pub refused: Vec<(StorePath, Error)>,
    /// The error after which no other path can be committed. The paths of the batch that the
    /// outcome does not list are not staged any more.
    pub end: Option<Error>,
}
