//! The copy pipeline: closures from sources into a target.
//!
//! 1. *Resolve* finds the paths that are missing in the target, and checks whether to trust them.
//! 2. *Plan* sorts them, largest first, and compares the needed with the free space.
//! 3. *Fetch* requests bodies, some of them before their worker is free.
//! 4. *Receive*: one worker decodes, hashes, parses and writes one path from begin to end.
//! 5. *Commit* makes complete paths valid in batches, references first.
//!
//! A path that fails takes only its referrers with it. No download waits for another one; only the
//! commit has an order.

mod commit;
mod failover;
mod fetch;
mod order;
mod receive;
mod resolve;
mod summary;
mod trust;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;

use floe_format::StorePath;
use floe_hash::hash_pool::HashPool;

use crate::sources::Sources;
use commit::{Commit, WaitingPath};
use fetch::Queue;
use floe_transfer::{
    CopyOptions, Error, Event, EventSink, PathSpec, PlannedPath, Source, Space, Target, codec,
};
use resolve::Resolved;

pub use summary::CopySummary;

/// Copies closures from sources into a target.
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
        let mut resolved = resolve::resolve(self, specs)?;
        self.discard_unneeded_trees(&resolved);
        summary.already_valid = resolved.already_valid;
        let mut requested_paths = std::mem::take(&mut resolved.requested_paths);
        let mut all_unavailable = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let unavailable = std::mem::take(&mut resolved.unavailable);
            let items = self.plan(resolved, &mut summary);
            if summary.space.is_none() {
                summary.space = self.estimate_space(&items)?;
            }
            if self.options.dry_run {
                return Ok(summary);
            }
            if !items.is_empty() || summary.failures.is_empty() {
                self.target.prepare()?;
            }
            let mut vanished = self.transfer(items, &unavailable, waiting, &mut summary)?;
            all_unavailable.extend(unavailable);
            if vanished.is_empty() {
                vanished = self.vanished_requests(&requested_paths, &summary, &all_unavailable)?;
            }
            if vanished.is_empty() {
                break;
            }
            // A collector before Nix 2.36 deleted paths despite their temp roots. Until it ends, it
            // may delete more of the paths that it examined earlier.
            self.target.wait_for_gc()?;
            let again: Vec<PathSpec> = vanished.into_iter().map(PathSpec::Path).collect();
            resolved = resolve::resolve(self, &again)?;
        }
        for WaitingPath { path, references } in waiting.drain(..) {
            self.target.keep_for_resume(std::slice::from_ref(&path));
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
            self.target.discard_recovered(&|_| false);
        }
        requested_paths.retain(|path| !missing.contains(path));
        summary.requested_paths = requested_paths;
        Ok(summary)
    }

    /// Deletes recovered trees that this copy does not need, because it may need their space. If a
    /// query failed, the copy does not know all paths that it needs, and keeps all trees.
    fn discard_unneeded_trees(&self, resolved: &Resolved) {
        let is_known = resolved.failures.is_empty() && resolved.unavailable.is_empty();
        if is_known {
            let is_wanted = |path: &StorePath| resolved.items.contains_key(path);
            self.target.discard_recovered(&is_wanted);
        }
    }

    /// Returns requested paths that were valid at the start and that a collector has deleted before
    /// their temp roots took effect. Paths that this copy registered had temp roots in time.
    fn vanished_requests(
        &self,
        requested_paths: &[StorePath],
        summary: &CopySummary,
        all_unavailable: &BTreeSet<StorePath>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        let planned: BTreeSet<&StorePath> = summary.planned.iter().map(|plan| &plan.0).collect();
        let is_untouched =
            |path: &&StorePath| !planned.contains(path) && !all_unavailable.contains(*path);
        let untouched = requested_paths.iter().filter(is_untouched);
        let untouched: Vec<StorePath> = untouched.cloned().collect();
        if untouched.is_empty() {
            return Ok(BTreeSet::new());
        }
        let vanished = self.target.query_vanished(&untouched)?;
        Ok(vanished.into_iter().collect())
    }

    /// Fails unless a source has paths for the target's store directory. Other sources get no
    /// queries.
    fn check_store_dirs(&self) -> Result<(), Error> {
        let dir = self.target.store_dir();
        let sources = &self.sources.list;
        match sources.iter().any(|source| source.is_for(dir)) {
            true => Ok(()),
            false => Err(self.store_dir_mismatch(&**sources.first().ok_or(Error::NoSources)?)),
        }
    }

    fn store_dir_mismatch(&self, source: &dyn Source) -> Error {
        Error::StoreDirMismatch {
            source_name: source.name(),
            found: source.store_dir().as_str().into(),
            wanted: self.target.store_dir().as_str().into(),
        }
    }

    /// Sorts the paths, largest first: they take longest, and small ones fill the gaps. A slow
    /// target gets references first.
    fn plan(&self, resolved: Resolved, summary: &mut CopySummary) -> Vec<PlannedPath> {
        summary.unplanned += resolved.failures.len();
        for error in resolved.failures {
            summary.fail(self.events, error);
        }
        let mut items: Vec<PlannedPath> = resolved.items.into_values().collect();
        for item in &mut items {
            let path = &item.narinfo.info.path;
            item.local_copies = self.options.reuse.local_copies(path);
            item.is_recovered = self.target.has_recovered(path);
        }
        items.sort_by_key(|item| Reverse(item.narinfo.info.nar_size));
        if self.target.needs_core_per_worker() {
            let workers = HashPool::sequential(items.len(), self.options.jobs).cores();
            items = order::references_first(items, workers);
        }
        let planned = items.iter().map(|item| {
            let info = &item.narinfo.info;
            let size = match item.narinfo.compression {
                // If the local copy turns out to be wrong, the path is fetched all the same.
                _ if item.is_local() => Some(0),
                floe_format::Compression::None => Some(info.nar_size),
                _ => item.narinfo.file_size,
            };
            (info.path.clone(), info.nar_size, size)
        });
        summary.planned.extend(planned);
        let nar_sizes = items.iter().map(|item| item.narinfo.info.nar_size);
        let fetched = items.iter().filter(|item| !item.is_local());
        let file_sizes = fetched.filter_map(|item| item.narinfo.file_size);
        self.events.event(Event::Planned {
            paths: items.len(),
            // A narinfo may claim any size, so the sums must not overflow.
            nar_bytes: nar_sizes.fold(0, u64::saturating_add),
            download_bytes: file_sizes.fold(0, u64::saturating_add),
        });
        items
    }

    /// Estimates the needed and the free space. Fails if the paths cannot fit, except in a dry run.
    fn estimate_space(&self, items: &[PlannedPath]) -> Result<Option<Space>, Error> {
        let (check, dry_run) = (self.options.check_space, self.options.dry_run);
        if items.is_empty() || !(check || dry_run) {
            return Ok(None);
        }
        let reuses = items.iter().any(|item| !item.local_copies.is_empty());
        let Some(mut space) = self.target.estimate_space(items)? else {
            return Ok(None);
        };
        space.may_share_files = self.options.optimise || reuses;
        for shortage in space.shortages().into_iter().filter(|_| check) {
            if shortage.is_certain && !dry_run {
                return Err(Error::NoSpace(Box::new(shortage)));
            }
            let shortage = &shortage;
            self.events.event(Event::LowSpace { shortage });
        }
        Ok(Some(space))
    }

    /// Fetches, receives and commits. Returns references that were valid when the copy queried them
    /// and are not valid any more. `waiting` gets the staged paths that need them.
    fn transfer(
        &self,
        items: Vec<PlannedPath>,
        unavailable: &BTreeSet<StorePath>,
        waiting: &mut Vec<WaitingPath>,
        summary: &mut CopySummary,
    ) -> Result<BTreeSet<StorePath>, Error> {
        let hash_pool = self.hash_pool(&items);
        let queue = Queue::new(self.sources, &items, hash_pool.cores());
        let (sender, receiver) = mpsc::sync_channel(RESULT_QUEUE_LEN);
        let mut commit = Commit::new(self, &queue, summary, waiting);
        commit.fail_referrers_of(unavailable);
        thread::scope(|scope| {
            for (number, place) in hash_pool.tickets().enumerate() {
                let (sender, queue) = (sender.clone(), &queue);
                let builder = thread::Builder::new().name(format!("floe-worker-{number}"));
                let run = move || receive::run_worker(self, queue, place, &sender);
                builder
                    .spawn_scoped(scope, run)
                    .map_err(|source| Error::File {
                        action: "start a thread for",
                        path: "the transfer".into(),
                        source,
                    })?;
            }
            drop(sender);
            let result = commit.run(&receiver);
            // After an error the workers must stop, because the commit takes no more results.
            if result.is_err() {
                queue.close();
                self.sources.list.iter().for_each(|source| source.abort());
            }
            commit.finish(receiver, result.as_ref().err());
            result
        })
    }

    /// Chooses the workers. A pool with batched workers has more workers than cores, and each needs
    /// the memory of a decoder or encoder. If that is much memory, hashing takes little of the
    /// time, so fewer workers lose little.
    fn hash_pool(&self, items: &[PlannedPath]) -> HashPool {
        let jobs = self.options.jobs;
        if self.target.needs_core_per_worker() {
            return HashPool::sequential(items.len(), jobs);
        }
        let hash_pool = HashPool::for_messages(items.iter().map(|i| i.narinfo.info.nar_size), jobs);
        let mut compressions = items.iter().map(|item| &item.narinfo.compression);
        match compressions.any(codec::has_large_window) {
            true => hash_pool.with_half_the_slots(),
            false => hash_pool,
        }
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), Error> {
        match self.options.cancel.is_raised() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}

/// The number of rounds. Each further round fetches the paths that a collector deleted during the
/// one before. A collector that does this three times would do it forever.
const ROUNDS_MAX: usize = 3;

/// The number of results that may wait for the commit. Workers wait if the queue is full.
const RESULT_QUEUE_LEN: usize = 64;
