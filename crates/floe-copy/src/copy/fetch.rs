//! The queue of the paths to transfer, and the prefetch of their bodies.
//!
//! The queue gets each path as soon as it is known, or all of them with the plan. Workers take
//! paths from both ends of their order (see `ClosureCopy::plan`), the largest and the smallest,
//! until the two ends meet. See `floe_hash::hash_pool` for the reason. If the target needs
//! references first, a path waits in the queue until its references were received.
//!
//! Prefetch hides the round trip of each request:
//!
//! - A *small* body is fetched whole as soon as there is room, so that a closure of many small
//!   paths does not cost a round trip for each. It waits in memory, so the server cannot time out.
//! - A *large* body is requested a few turns ahead, and only if a connection is to spare (see the
//!   `limiter` of floe-cache). A few chunks wait in its channel, then its connection waits for the
//!   worker. The server may close such a connection after a while. Therefore a large body that
//!   waited for long may be stale, and its worker requests it again without counting an attempt.

mod reference_order;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_hash::hash_pool::HashPool;
use floe_transfer::codec::DecoderBudget;
use floe_transfer::{
    Buffering, Error, NarRequest, NarStream, NeededPaths, PlannedPath, SMALL_LEN_MAX,
};
use parking_lot::{Condvar, Mutex};

use self::reference_order::ReferenceOrder;
use crate::sources::Sources;

/// The paths to transfer. Workers take them one by one from both ends.
pub(crate) struct Queue<'a> {
    sources: &'a Sources,
    order: QueueOrder,
    /// The number of large bodies that are prefetched.
    large_max: usize,
    /// The memory budget of all decoders.
    pub(crate) decoder_budget: DecoderBudget,
    state: Mutex<QueueState>,
    /// Wakes the workers that wait for a path.
    changed: Condvar,
}

/// The order of the paths of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueOrder {
    /// Largest first.
    BySize,
    /// The order in which they were added.
    AsAdded,
    /// The order in which they were added, except that a path waits for its references.
    ReferencesFirst,
}

/// The place of a path in the order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Rank {
    /// `u64::MAX` minus the size, if the size matters.
    order: u64,
    /// The number of paths that were added before.
    number: usize,
}

/// The end of the order from which a worker takes paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// The largest remaining path.
    Largest,
    /// The smallest remaining path.
    Smallest,
}

/// A path that a worker has taken.
pub(crate) struct Job {
    pub(crate) planned: Arc<PlannedPath>,
    /// `None` for a path that may be reused from this machine or come from another source.
    pub(crate) nar: Option<Result<NarStream, Error>>,
    /// The body was requested long ago, and its server may have closed the connection.
    pub(crate) may_be_stale: bool,
}

#[derive(Default)]
struct QueueState {
    /// The number of paths that were added.
    added: usize,
    /// The paths that no worker has taken.
    remaining: BTreeMap<Rank, Arc<PlannedPath>>,
    small: Prefetch,
    large: Prefetch,
    skipped: HashSet<StorePath>,
    /// The paths that wait for others, with [`QueueOrder::ReferencesFirst`].
    references: ReferenceOrder,
    /// Whether no further paths follow.
    is_complete: bool,
    is_closed: bool,
}

/// The prefetch of the small paths, or of the large ones.
#[derive(Default)]
struct Prefetch {
    /// The remaining paths without a body.
    candidates: BTreeSet<Rank>,
    /// Prefetched bodies with the time of their request.
    bodies: HashMap<Rank, (Instant, Result<NarStream, Error>)>,
}

impl NeededPaths for Queue<'_> {
    fn is_needed(&self, path: &StorePath) -> bool {
        let state = self.state.lock();
        !state.is_closed && !state.skipped.contains(path)
    }
}

impl<'a> Queue<'a> {
    /// Makes an empty queue that prefetches `large_max` large bodies.
    pub(crate) fn new(sources: &'a Sources, order: QueueOrder, large_max: usize) -> Queue<'a> {
        Queue {
            sources,
            order,
            large_max,
            decoder_budget: DecoderBudget::new(HashPool::workers_max()),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Adds a path while the copy still resolves the closure, and prefetches its body if there is
    /// room.
    pub(crate) fn add_early(&self, planned: Arc<PlannedPath>) {
        let mut state = self.state.lock();
        state.insert(self.order, planned);
        self.prefetch(&mut state, QueueEnd::Largest);
        drop(state);
        self.changed.notify_one();
    }

    /// Adds the last paths.
    pub(crate) fn complete(&self, planned_paths: impl Iterator<Item = Arc<PlannedPath>>) {
        let mut state = self.state.lock();
        for planned in planned_paths {
            state.insert(self.order, planned);
        }
        state.is_complete = true;
        // The workers may be busy with early paths.
        if state.added > 0 {
            self.prefetch(&mut state, QueueEnd::Largest);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the next path with its NAR, or `None` if there are no more. Waits for a path if more
    /// may follow.
    pub(crate) fn next(&self, end: QueueEnd) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            let Some((rank, planned)) = state.take(self.order, end) else {
                if state.is_exhausted() {
                    return None;
                }
                self.changed.wait(&mut state);
                continue;
            };
            let prefetch = state.prefetch_of(&planned);
            prefetch.candidates.remove(&rank);
            let prefetched = prefetch.bodies.remove(&rank);
            if state.skipped.contains(&planned.narinfo.info.path) {
                continue;
            }
            let (may_be_stale, nar) = match prefetched {
                Some((since, nar)) => {
                    let may_be_stale = !is_small(&planned) && since.elapsed() > STALE_AFTER;
                    (may_be_stale, Some(nar))
                }
                None if planned.is_local() || self.sources.is_avoided(planned.source) => {
                    (false, None)
                }
                None => (false, Some(self.open(&planned))),
            };
            self.prefetch(&mut state, end);
            return Some(Job {
                planned,
                nar,
                may_be_stale,
            });
        }
    }

    /// Records that the target has received a path. Its referrers need not wait for it any more.
    pub(crate) fn record_received(&self, path: &StorePath) {
        if self.order == QueueOrder::ReferencesFirst {
            self.state.lock().references.release(path);
            self.changed.notify_all();
        }
    }

    /// Opens the NAR of a path at its source. The source gives up early if others may have the
    /// path.
    pub(crate) fn open(&self, planned: &PlannedPath) -> Result<NarStream, Error> {
        self.open_at(planned, self.sources.have_alternative_to(planned.source))
    }

    /// Opens the NAR of a path at its source, which does not give up early.
    pub(crate) fn open_for_all_attempts(&self, planned: &PlannedPath) -> Result<NarStream, Error> {
        self.open_at(planned, false)
    }

    fn open_at(&self, planned: &PlannedPath, can_fail_over: bool) -> Result<NarStream, Error> {
        let request = NarRequest {
            buffering: if is_small(planned) {
                Buffering::Whole
            } else {
                Buffering::Stream
            },
            can_fail_over,
        };
        self.sources.list[planned.source].open_nar(&planned.narinfo, request)
    }

    /// Opens the NAR of a large path one turn ahead, if a connection is to spare.
    fn prefetch_large(&self, planned: &PlannedPath) -> Option<Result<NarStream, Error>> {
        let request = NarRequest {
            buffering: Buffering::Stream,
            can_fail_over: self.sources.have_alternative_to(planned.source),
        };
        self.sources.list[planned.source].prefetch_nar(&planned.narinfo, request)
    }

    /// Skips paths that no worker has taken. A worker that has taken one makes no further attempt.
    pub(crate) fn skip(&self, paths: impl IntoIterator<Item = StorePath>) {
        let mut state = self.state.lock();
        for path in paths {
            state.references.release(&path);
            state.skipped.insert(path);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Closes the queue: workers get no more paths.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.remaining.clear();
        state.small = Prefetch::default();
        state.large = Prefetch::default();
        drop(state);
        self.changed.notify_all();
    }

    /// Returns a guard that closes the queue at its end.
    pub(crate) fn close_on_drop(&self) -> CloseOnDrop<'_> {
        CloseOnDrop(self)
    }
    /// Prefetches bodies for the next turns. Large bodies come first: they get a connection only if
    /// one is to spare, while a request for a small body waits for a connection in any case.
    fn prefetch(&self, state: &mut QueueState, end: QueueEnd) {
        let small_max = if state.is_complete {
            SMALL_PREFETCH_MAX
        } else {
            EARLY_PREFETCH_MAX
        };
        let QueueState {
            remaining, skipped, ..
        } = state;
        let small = (&mut state.small, small_max);
        for (Prefetch { candidates, bodies }, limit) in [(&mut state.large, self.large_max), small]
        {
            while bodies.len() < limit
                && let Some(rank) = end.peek(candidates)
            {
                if let Some(planned) = remaining.get(&rank)
                    && !skipped.contains(&planned.narinfo.info.path)
                    && !planned.is_local()
                    && !self.sources.is_avoided(planned.source)
                {
                    let body = if is_small(planned) {
                        Some(self.open(planned))
                    } else {
                        self.prefetch_large(planned)
                    };
                    // There is no connection to spare. The worker will request the body itself.
                    let Some(body) = body else { break };
                    bodies.insert(rank, (Instant::now(), body));
                }
                candidates.remove(&rank);
            }
        }
    }
}

/// Closes a queue at its end.
pub(crate) struct CloseOnDrop<'a>(&'a Queue<'a>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl QueueState {
    fn insert(&mut self, order: QueueOrder, planned: Arc<PlannedPath>) {
        if self.is_closed {
            return;
        }
        let waits = order == QueueOrder::ReferencesFirst;
        let order = match order {
            QueueOrder::BySize => u64::MAX - planned.narinfo.info.nar_size,
            QueueOrder::AsAdded | QueueOrder::ReferencesFirst => 0,
        };
        let number = self.added;
        self.added += 1;
        let rank = Rank { order, number };
        if waits {
            self.references.add(rank, &planned.narinfo.info);
        }
        self.prefetch_of(&planned).candidates.insert(rank);
        self.remaining.insert(rank, planned);
    }

    /// Takes the next path from an end.
    fn take(&mut self, order: QueueOrder, end: QueueEnd) -> Option<(Rank, Arc<PlannedPath>)> {
        match (order, end) {
            (QueueOrder::ReferencesFirst, _) => {
                let rank = self.references.take()?;
                self.remaining.remove_entry(&rank)
            }
            (_, QueueEnd::Largest) => self.remaining.pop_first(),
            (_, QueueEnd::Smallest) => self.remaining.pop_last(),
        }
    }

    /// Whether workers get no more paths.
    fn is_exhausted(&self) -> bool {
        self.is_closed || self.is_complete && self.remaining.is_empty()
    }

    fn prefetch_of(&mut self, planned: &PlannedPath) -> &mut Prefetch {
        if is_small(planned) {
            &mut self.small
        } else {
            &mut self.large
        }
    }
}

impl QueueEnd {
    fn peek(self, ranks: &BTreeSet<Rank>) -> Option<Rank> {
        match self {
            QueueEnd::Largest => ranks.first().copied(),
            QueueEnd::Smallest => ranks.last().copied(),
        }
    }
}

fn is_small(planned: &PlannedPath) -> bool {
    let size = planned.narinfo.file_size;
    size.is_some_and(|size| size <= SMALL_LEN_MAX as u64)
}

/// The number of prefetched small bodies, for any number of connections: at most 32 MiB.
const SMALL_PREFETCH_MAX: usize = 32;

/// The number of prefetched small bodies while the copy resolves the closure: half of the usual
/// connections, so that the other half can send queries.
const EARLY_PREFETCH_MAX: usize = 12;

/// The age from which a prefetched large body may be stale. Servers keep an unread connection for
/// longer than this.
const STALE_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
