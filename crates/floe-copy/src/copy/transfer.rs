//! The transfer of one round: the paths before and after its plan, and the workers.
//!
//! A target that can stage paths early gets the first ones while the copy still resolves the
//! closure, under these conditions:
//!
//! - A path comes only after the target lacked it and its narinfo passed the trust check.
//! - All early paths together need at most half of the free space. The plan decides about the rest.
//! - Nothing is committed before the plan is complete.
//!
//! On a CPU that hashes many messages at once, the workers start with the plan, because their
//! division depends on it; until then bodies are only prefetched.

use std::collections::{BTreeSet, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope};

use floe_format::StorePath;
use floe_hash::hash_pool::HashPool;
use floe_transfer::{Error, PlannedPath, Space, codec};

use super::ClosureCopy;
use super::commit::{Commit, WaitingPath};
use super::fetch::Queue;
use super::receive::{WorkerResult, run_worker};
use super::summary::CopySummary;

/// The transfer of one round.
pub(super) struct Transfer<'scope, 'env> {
    copy: &'env ClosureCopy<'env>,
    queue: &'env Queue<'env>,
    scope: &'scope Scope<'scope, 'env>,
    /// Results wait until the plan is complete, so there can be as many as paths.
    results: Receiver<WorkerResult>,
    sender: Sender<WorkerResult>,
    early: Early,
}

/// The paths that are transferred before the plan is complete.
#[derive(Default)]
struct Early {
    /// Whether further paths may follow.
    is_open: bool,
    has_workers: bool,
    planned_paths: Vec<Arc<PlannedPath>>,
    paths: HashSet<StorePath>,
    /// The sum of their NAR sizes, in bytes.
    nar_bytes: u64,
    /// The space before the first of them, if the target can tell.
    space: Option<Space>,
    /// The space is examined again for more bytes or paths.
    examined: (u64, usize),
}

impl<'scope, 'env> Transfer<'scope, 'env> {
    pub(super) fn new(
        copy: &'env ClosureCopy<'env>,
        queue: &'env Queue<'env>,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Transfer<'scope, 'env> {
        let (sender, results) = channel();
        Transfer {
            copy,
            queue,
            scope,
            results,
            sender,
            early: Early {
                is_open: !copy.options.dry_run && copy.target.facts().receives_early,
                ..Early::default()
            },
        }
    }

    /// Adds a path that the target lacks, before the plan is complete.
    ///
    /// Errors: those of the target; a worker could not be started.
    pub(super) fn add_early(&mut self, planned: &Arc<PlannedPath>) -> Result<(), Error> {
        let early = &mut self.early;
        let info = &planned.narinfo.info;
        if !early.is_open || early.paths.contains(&info.path) {
            return Ok(());
        }
        early.planned_paths.push(planned.clone());
        early.nar_bytes = early.nar_bytes.saturating_add(info.nar_size);
        if !self.has_room()? {
            self.early.is_open = false;
            self.early.planned_paths.pop();
            return Ok(());
        }
        if self.early.paths.is_empty() {
            self.copy.target.prepare()?;
        }
        self.early.paths.insert(info.path.clone());
        self.queue.add_early(planned.clone());
        if !self.early.has_workers
            && let Some(pool) = HashPool::for_unknown_messages(self.copy.options.jobs)
        {
            self.early.has_workers = true;
            self.start_workers(&pool)?;
        }
        Ok(())
    }

    /// Whether all early paths together need at most half of the free space. Looks again after each
    /// growth by half, so that the paths between two looks still fit.
    fn has_room(&mut self) -> Result<bool, Error> {
        let early = &mut self.early;
        let (nar_bytes, paths) = early.examined;
        if !self.copy.options.check_space
            || early.nar_bytes <= nar_bytes && early.planned_paths.len() <= paths
        {
            return Ok(true);
        }
        let Some(mut space) = self.copy.estimate_space(&early.planned_paths)? else {
            return Ok(true);
        };
        match &early.space {
            // The files of the early paths take space already.
            Some(first) => space.file_system = first.file_system.clone(),
            None => early.space = Some(space.clone()),
        }
        early.examined = (
            (early.nar_bytes / 2).saturating_mul(3),
            early.planned_paths.len() / 2 * 3,
        );
        Ok(space.is_ample())
    }

    /// Returns the space before the first early path.
    pub(super) fn first_space(&self) -> Option<&Space> {
        self.early.space.as_ref()
    }

    /// Fetches, receives and commits. Returns references that were valid when the copy queried them
    /// and are not valid any more. `waiting` gets the staged paths that need them.
    pub(super) fn run(
        self,
        planned_paths: &[Arc<PlannedPath>],
        unavailable: &BTreeSet<StorePath>,
        waiting: &mut Vec<WaitingPath>,
        summary: &mut CopySummary,
    ) -> Result<BTreeSet<StorePath>, Error> {
        let mut commit = Commit::new(self.copy, self.queue, planned_paths, summary, waiting);
        commit.fail_referrers_of(unavailable);
        let is_new =
            |planned: &&Arc<PlannedPath>| !self.early.paths.contains(&planned.narinfo.info.path);
        self.queue
            .complete(planned_paths.iter().filter(is_new).cloned());
        if !self.early.has_workers {
            let pool = self.hash_pool(planned_paths);
            if let Err(error) = self.start_workers(&pool) {
                self.queue.close();
                return Err(error);
            }
        }
        drop(self.sender);
        let result = commit.run(&self.results);
        // After an error the workers must stop, because the commit takes no more results.
        if result.is_err() {
            stop(self.copy, self.queue);
        }
        commit.finish(self.results, result.as_ref().err());
        result
    }

    /// Ends the transfer of early paths after an error. Staged paths are kept for the next run if
    /// the error allows that.
    pub(super) fn abandon(
        self,
        error: &Error,
        waiting: &mut Vec<WaitingPath>,
        summary: &mut CopySummary,
    ) {
        if self.early.paths.is_empty() {
            self.queue.close();
            return;
        }
        stop(self.copy, self.queue);
        drop(self.sender);
        let mut commit = Commit::new(
            self.copy,
            self.queue,
            &self.early.planned_paths,
            summary,
            waiting,
        );
        commit.finish(self.results, Some(error));
    }

    fn start_workers(&self, pool: &HashPool) -> Result<(), Error> {
        for (number, place) in pool.tickets().enumerate() {
            let (copy, queue, sender) = (self.copy, self.queue, self.sender.clone());
            let builder = Builder::new().name(format!("floe-worker-{number}"));
            let run = move || run_worker(copy, queue, place, &sender);
            builder
                .spawn_scoped(self.scope, run)
                .map_err(Error::Thread)?;
        }
        Ok(())
    }

    /// Chooses the workers. A pool with batched workers has more workers than cores, and each needs
    /// the memory of a decoder or encoder. If that is much memory, hashing takes little of the
    /// time, so fewer workers lose little.
    fn hash_pool(&self, planned_paths: &[Arc<PlannedPath>]) -> HashPool {
        let jobs: Option<NonZeroUsize> = self.copy.options.jobs;
        let facts = self.copy.target.facts();
        if facts.needs_core_per_worker || facts.needs_references_first {
            return HashPool::sequential(planned_paths.len(), jobs);
        }
        let hash_pool =
            HashPool::for_messages(planned_paths.iter().map(|i| i.narinfo.info.nar_size), jobs);
        let mut compressions = planned_paths
            .iter()
            .map(|planned| &planned.narinfo.compression);
        if compressions.any(codec::has_large_window) {
            hash_pool.with_half_the_slots()
        } else {
            hash_pool
        }
    }
}

/// Stops the workers and their downloads.
fn stop(copy: &ClosureCopy<'_>, queue: &Queue<'_>) {
    queue.close();
    copy.sources.list.iter().for_each(|source| source.abort());
}
