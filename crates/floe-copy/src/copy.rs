//! The copy pipeline: closures from sources into a target.
//!
//! 1. *Resolve* finds the paths that are missing in the target, and checks whether to trust them.
//! 2. *Plan* sorts them, largest first, and compares the needed with the free space.
//! 3. *Fetch* requests bodies, some of them before their worker is free.
//! 4. *Receive*: one worker decodes, hashes, parses and writes one path from begin to end.
//! 5. *Commit* makes complete paths valid in batches, references first.
//!
//! The first paths are fetched and received while resolve still finds others (see `transfer`),
//! unless the target needs the whole plan first.
//!
//! A path that fails takes only its referrers with it. No download waits for another one; only the
//! commit has an order.

mod commit;
mod failover;
mod fetch;
mod order;
mod plan;
mod receive;
mod resolve;
mod signatures;
mod summary;
mod transfer;
pub(crate) mod trust;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use floe_format::StorePath;
use floe_hash::hash_pool::HashPool;

use commit::WaitingPath;
use fetch::{Queue, QueueOrder};
use floe_transfer::{
    CopyOptions, Error, Event, EventSink, PathSpec, PlannedPath, Space, Target, large_prefetch_max,
};
use transfer::Transfer;
use trust::store_dir_mismatch;

use crate::sources::Sources;

pub use summary::CopySummary;

/// A part of a copy: some closures are resolved, and their missing paths transferred. A copy has
/// more than one only if a collector deletes paths that it needs.
struct Round {
    /// The store paths of the requested paths that were found.
    requested_paths: Vec<StorePath>,
    already_valid: u64,
    /// Paths that are missing in the target and in all sources.
    unavailable: BTreeSet<StorePath>,
    /// Paths that were valid when the copy queried them and are not valid any more.
    vanished: BTreeSet<StorePath>,
}

/// A copy of closures from sources into a target; every stage uses it.
pub struct ClosureCopy<'a> {
    /// The sources.
    pub sources: &'a Sources,
    /// The target.
    pub target: &'a dyn Target,
    /// The options.
    pub options: &'a CopyOptions,
    /// Receives the events.
    pub events: &'a dyn EventSink,
}

impl ClosureCopy<'_> {
    /// Copies the closures of the requested paths. The summary lists the paths that failed.
    ///
    /// Errors: no source has paths for the target's store directory, the target failed, there is
    /// too little space, or the copy was cancelled.
    pub fn run(&self, specs: &[PathSpec]) -> Result<CopySummary, Error> {
        let store_dir = self.target.store_dir();
        self.events.event(Event::Begun { store_dir });
        let result = self.check_and_run(specs);
        self.events.event(Event::Ended);
        result
    }

    fn check_and_run(&self, specs: &[PathSpec]) -> Result<CopySummary, Error> {
        self.check_store_dirs()?;
        let mut waiting = Vec::new();
        let result = self.run_rounds(specs, &mut waiting);
        if result.is_err() {
            let waiting: Vec<StorePath> = waiting.into_iter().map(|waiting| waiting.path).collect();
            self.target.discard(&waiting);
        }
        result
    }

    fn run_rounds(
        &self,
        specs: &[PathSpec],
        waiting: &mut Vec<WaitingPath>,
    ) -> Result<CopySummary, Error> {
        let mut summary = CopySummary::default();
        let round = self.run_round(specs, waiting, &mut summary)?;
        summary.already_valid = round.already_valid;
        let (mut requested_paths, mut all_unavailable) = (round.requested_paths, round.unavailable);
        if self.options.dry_run {
            return Ok(summary);
        }
        let mut vanished = round.vanished;
        for _ in 1..ROUNDS_MAX {
            if vanished.is_empty() {
                vanished = self.vanished_requests(&requested_paths, &summary, &all_unavailable)?;
            }
            if vanished.is_empty() {
                break;
            }
            // A collector before Nix 2.36 deleted paths despite their temp roots. Until it ends, it
            // may delete more of the paths that it examined earlier.
            if let Some(target) = self.target.as_collected() {
                target.wait_for_gc()?;
            }
            let again: Vec<PathSpec> = vanished.into_iter().map(PathSpec::Path).collect();
            let round = self.run_round(&again, waiting, &mut summary)?;
            all_unavailable.extend(round.unavailable);
            vanished = round.vanished;
        }
        for WaitingPath { path, references } in waiting.drain(..) {
            self.keep_for_resume(std::slice::from_ref(&path));
            let missing = references;
            summary.fail(self.events, Error::MissingReferences { path, missing });
        }
        let missing = self
            .target
            .add_temp_roots_and_query_missing(&requested_paths)?;
        let missing: BTreeSet<StorePath> = missing.paths.into_iter().collect();
        if summary.failures.is_empty() {
            for path in missing.iter().cloned() {
                summary.fail(self.events, Error::Vanished { path });
            }
        }
        if summary.failures.is_empty() {
            self.discard_recovered(&|_| false);
        }
        requested_paths.retain(|path| !missing.contains(path));
        self.add_signatures(&mut summary)?;
        summary.requested_paths = requested_paths;
        Ok(summary)
    }

    /// Resolves the closures of `specs` and transfers the paths that are missing.
    fn run_round(
        &self,
        specs: &[PathSpec],
        waiting: &mut Vec<WaitingPath>,
        summary: &mut CopySummary,
    ) -> Result<Round, Error> {
        let facts = self.target.facts();
        let order = match (facts.needs_references_first, facts.needs_core_per_worker) {
            (true, _) => QueueOrder::ReferencesFirst,
            (false, true) => QueueOrder::AsAdded,
            (false, false) => QueueOrder::BySize,
        };
        let jobs = HashPool::sequential(0, self.options.jobs).cores();
        let queue = Queue::new(self.sources, order, large_prefetch_max(jobs));
        thread::scope(|scope| {
            // Workers must not wait for more paths after a panic.
            let _closed_at_end = queue.close_on_drop();
            let mut transfer = Transfer::new(self, &queue, scope);
            let found = resolve::resolve(self, specs, &mut |planned| transfer.add_early(planned))
                .and_then(|resolved| self.plan_round(resolved, &transfer, summary));
            let (mut round, planned_paths) = match found {
                Ok(found) => found,
                Err(error) => {
                    transfer.abandon(&error, waiting, summary);
                    return Err(error);
                }
            };
            if !self.options.dry_run {
                round.vanished =
                    transfer.run(&planned_paths, &round.unavailable, waiting, summary)?;
            }
            Ok(round)
        })
    }

    /// Returns requested paths that were valid at the start and that a collector has deleted before
    /// their temp roots took effect. Paths that this copy registered had temp roots in time.
    fn vanished_requests(
        &self,
        requested_paths: &[StorePath],
        summary: &CopySummary,
        all_unavailable: &BTreeSet<StorePath>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        let Some(target) = self.target.as_collected() else {
            return Ok(BTreeSet::new());
        };
        let planned: BTreeSet<&StorePath> = summary.planned.iter().map(|plan| &plan.0).collect();
        let is_untouched =
            |path: &&StorePath| !planned.contains(path) && !all_unavailable.contains(*path);
        let untouched: Vec<StorePath> = requested_paths
            .iter()
            .filter(is_untouched)
            .cloned()
            .collect();
        if untouched.is_empty() {
            return Ok(BTreeSet::new());
        }
        let vanished = target.query_vanished(&untouched)?;
        Ok(vanished.into_iter().collect())
    }

    /// Fails unless a source has paths for the target's store directory. Other sources get no
    /// queries.
    fn check_store_dirs(&self) -> Result<(), Error> {
        let dir = self.target.store_dir();
        let sources = &self.sources.list;
        if self.sources.are_unneeded || sources.iter().any(|source| source.is_for(dir)) {
            return Ok(());
        }
        let first = sources.first().ok_or(Error::NoSources)?;
        Err(store_dir_mismatch(&**first, self.target.store_dir()))
    }

    fn estimate_space(&self, planned_paths: &[Arc<PlannedPath>]) -> Result<Option<Space>, Error> {
        let reuses = planned_paths
            .iter()
            .any(|planned| !planned.local_copies.is_empty());
        let mut space = self.target.estimate_space(planned_paths)?;
        if let Some(space) = &mut space {
            space.may_share_files = self.options.optimise || reuses;
        }
        Ok(space)
    }

    /// Whether the target has kept the path, from an interrupted run.
    fn has_recovered(&self, path: &StorePath) -> bool {
        let target = self.target.as_resumable();
        target.is_some_and(|target| target.has_recovered(path))
    }

    /// Deletes recovered trees of the target, except those of wanted paths.
    fn discard_recovered(&self, is_wanted: &dyn Fn(&StorePath) -> bool) {
        if let Some(target) = self.target.as_resumable() {
            target.discard_recovered(is_wanted);
        }
    }

    /// Keeps staged paths for the next run, or drops them if the target cannot keep them. Returns
    /// the number of kept paths.
    fn keep_for_resume(&self, paths: &[StorePath]) -> usize {
        if let Some(target) = self.target.as_resumable() {
            return target.keep_for_resume(paths);
        }
        self.target.discard(paths);
        0
    }

    fn check_cancelled(&self) -> Result<(), Error> {
        if self.options.cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// The number of rounds. Each further round fetches the paths that a collector deleted during the
/// one before. A collector that does this three times would do it forever.
const ROUNDS_MAX: usize = 3;
