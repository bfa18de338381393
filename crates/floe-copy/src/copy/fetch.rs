//! The queue of planned paths, and the prefetch of their bodies.
//!
//! Workers take paths from both ends of the plan (see `ClosureCopy::plan`), the largest and the
//! smallest, until the two ends meet. See `floe_hash::hash_pool` for the reason.
//!
//! Prefetch hides the round trip of each request:
//!
//! - A *small* body is fetched whole as soon as there is room, so that a closure of many small
//!   paths does not cost a round trip for each. It waits in memory, so the server cannot time out.
//! - A *large* body is requested one turn ahead, and only if a connection is to spare (see the
//!   `limiter` of floe-cache). A few chunks wait in its channel, then its connection waits for the
//!   worker. The server may close such a connection after a while. Therefore a large body that
//!   waited for long may be stale, and its worker requests it again without counting an attempt.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use floe_format::StorePath;
use floe_hash::hash_pool::HashPool;
use floe_transfer::codec::DecoderBudget;
use floe_transfer::{Buffering, Error, NarStream, PlannedPath, SMALL_LEN_MAX};

use crate::sources::Sources;

/// The planned paths. Workers take them one by one from both ends.
pub(crate) struct Queue<'a> {
    sources: &'a Sources,
    /// All paths in the order of the plan.
    pub(crate) items: &'a [PlannedPath],
    jobs: usize,
    /// The memory budget of all decoders.
    pub(crate) decoder_budget: DecoderBudget,
    state: Mutex<QueueState>,
}

/// The end of the plan from which a worker takes paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueEnd {
    /// The largest remaining path.
    Largest,
    /// The smallest remaining path.
    Smallest,
}

impl QueueEnd {
    fn peek(self, indexes: &IntoIter<usize>) -> Option<usize> {
        match self {
            QueueEnd::Largest => indexes.as_slice().first().copied(),
            QueueEnd::Smallest => indexes.as_slice().last().copied(),
        }
    }

    fn pop(self, indexes: &mut impl DoubleEndedIterator<Item = usize>) -> Option<usize> {
        match self {
            QueueEnd::Largest => indexes.next(),
            QueueEnd::Smallest => indexes.next_back(),
        }
    }
}

/// A path that a worker has taken.
pub(crate) struct Job<'a> {
    pub(crate) item: &'a PlannedPath,
    /// `None` for a path that may be reused from this machine.
    pub(crate) nar: Option<Result<NarStream, Error>>,
    /// The body was requested long ago, and its server may have closed the connection.
    pub(crate) may_be_stale: bool,
}

#[derive(Default)]
struct QueueState {
    /// The paths that no worker has taken.
    remaining: Range<usize>,
    small: Prefetch,
    large: Prefetch,
    skipped: HashSet<StorePath>,
    is_closed: bool,
}

/// The prefetch of the small paths, or of the large ones.
#[derive(Default)]
struct Prefetch {
    /// The paths that may be prefetched.
    candidates: IntoIter<usize>,
    /// Prefetched bodies with the time of their request.
    bodies: HashMap<usize, (Instant, Result<NarStream, Error>)>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(sources: &'a Sources, items: &'a [PlannedPath], jobs: usize) -> Queue<'a> {
        let mut state = QueueState {
            remaining: 0..items.len(),
            ..QueueState::default()
        };
        let (small, large): (Vec<_>, Vec<_>) =
            (0..items.len()).partition(|index| is_small(&items[*index]));
        state.small.candidates = small.into_iter();
        state.large.candidates = large.into_iter();
        Queue {
            sources,
            items,
            jobs,
            decoder_budget: DecoderBudget::new(HashPool::workers_max()),
            state: Mutex::new(state),
        }
    }

    /// Returns the next path with its NAR, or `None` if there are no more.
    pub(crate) fn next(&self, end: QueueEnd) -> Option<Job<'a>> {
        let mut state = self.state();
        loop {
            let index = end.pop(&mut state.remaining)?;
            let item = &self.items[index];
            let prefetched = match is_small(item) {
                true => state.small.bodies.remove(&index),
                false => state.large.bodies.remove(&index),
            };
            if state.skipped.contains(&item.narinfo.info.path) {
                continue;
            }
            let (may_be_stale, nar) = match prefetched {
                Some((since, nar)) => (!is_small(item) && since.elapsed() > STALE_AFTER, Some(nar)),
                None if item.is_local() => (false, None),
                None => (false, Some(self.open(item))),
            };
            self.prefetch(&mut state, end);
            return Some(Job {
                item,
                nar,
                may_be_stale,
            });
        }
    }

    /// Opens the NAR of a path at its source.
    pub(crate) fn open(&self, item: &PlannedPath) -> Result<NarStream, Error> {
        let buffering = match is_small(item) {
            true => Buffering::Whole,
            false => Buffering::Stream,
        };
        self.sources.list[item.source].open_nar(&item.narinfo, buffering)
    }

    /// Skips paths that no worker has taken. A worker that has taken one makes no further attempt.
    pub(crate) fn skip(&self, paths: impl IntoIterator<Item = StorePath>) {
        self.state().skipped.extend(paths);
    }

    /// Closes the queue: workers get no more paths.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.remaining = 0..0;
        state.small.bodies.clear();
        state.large.bodies.clear();
    }

    /// Whether the copy still needs a path that a worker has taken.
    pub(crate) fn is_needed(&self, path: &StorePath) -> bool {
        let state = self.state();
        !state.is_closed && !state.skipped.contains(path)
    }

    /// Prefetches bodies for the next turns. Large bodies come first: they get a connection only if
    /// one is to spare, while a request for a small body waits for a connection in any case.
    fn prefetch(&self, state: &mut QueueState, end: QueueEnd) {
        let (remaining, skipped) = (&state.remaining, &state.skipped);
        let small = (&mut state.small, SMALL_PREFETCH_MAX);
        for (Prefetch { candidates, bodies }, limit) in [(&mut state.large, self.jobs), small] {
            while bodies.len() < limit
                && let Some(index) = end.peek(candidates)
            {
                let item = &self.items[index];
                let is_skipped = skipped.contains(&item.narinfo.info.path);
                if remaining.contains(&index) && !is_skipped && !item.is_local() {
                    let body = match is_small(item) {
                        true => Some(self.open(item)),
                        false => self.sources.list[item.source].prefetch_nar(&item.narinfo),
                    };
                    // There is no connection to spare. The worker will request the body itself.
                    let Some(body) = body else { break };
                    bodies.insert(index, (Instant::now(), body));
                }
                end.pop(candidates);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Every change under the lock is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_small(item: &PlannedPath) -> bool {
    let size = item.narinfo.file_size;
    size.is_some_and(|size| size <= SMALL_LEN_MAX as u64)
}

/// The number of prefetched small bodies, for any number of connections: at most 32 MiB.
const SMALL_PREFETCH_MAX: usize = 32;

/// The age from which a prefetched large body may be stale. Servers keep an unread connection for
/// longer than this.
const STALE_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs;

    use floe_format::{NarInfo, StoreDir};

    use super::*;
    use crate::registry::resolve_store_uri;
    use crate::sources::SourceOrder;
    use crate::store_config::UriContext;
    use floe_cache::NetworkOptions;
    use floe_transfer::Cancel;

    /// Returns the `number`th path of a plan, with `len` bytes, from a cache whose NARs are empty.
    fn item(number: usize, len: u64) -> PlannedPath {
        let hash = "sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s";
        let text = format!(
            "StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-{number}\nURL: nar\n\
             Compression: none\nFileSize: {len}\nNarHash: {hash}\nNarSize: {len}\n\
             References: \n"
        );
        PlannedPath {
            narinfo: NarInfo::parse(text.as_bytes(), &StoreDir::default()).unwrap(),
            source: 0,
            local_copies: Vec::new(),
            is_recovered: false,
            relies_on_content_address: false,
        }
    }

    #[test]
    fn queue_ends_meet_and_every_path_is_handed_out_once() {
        let cache = tempfile::tempdir().unwrap();
        fs::write(
            cache.path().join("nix-cache-info"),
            "StoreDir: /nix/store\n",
        )
        .unwrap();
        fs::write(cache.path().join("nar"), "").unwrap();
        let url = format!("file://{}", cache.path().display());
        let location = resolve_store_uri(&url, &UriContext::default()).unwrap();
        let sources = Sources::open(
            &[location],
            SourceOrder::AsListed,
            &NetworkOptions::default(),
            &Cancel::default(),
        )
        .unwrap();
        let large = SMALL_LEN_MAX as u64 * 2;
        // More than the prefetch limits of both kinds.
        let len_of = |number| if number < 40 { large } else { 100 };
        let items: Vec<PlannedPath> = (0..140)
            .map(|number| item(number, len_of(number)))
            .collect();
        let queue = Queue::new(&sources, &items, 2);
        queue.skip([items[3].narinfo.info.path.clone()]);
        let (mut largest, mut smallest) = (Vec::new(), Vec::new());
        loop {
            let (end, taken) = match largest.len() <= smallest.len() {
                true => (QueueEnd::Largest, &mut largest),
                false => (QueueEnd::Smallest, &mut smallest),
            };
            let Some(job) = queue.next(end) else { break };
            assert!(matches!(job.nar, Some(Ok(_))));
            let name = job.item.narinfo.info.path.name();
            taken.push(name.parse::<usize>().unwrap());
        }
        assert!(largest.is_sorted() && smallest.is_sorted_by(|a, b| a > b));
        assert!(largest.len().abs_diff(smallest.len()) <= 1);
        let mut all = [largest, smallest].concat();
        all.sort_unstable();
        let expected: Vec<usize> = (0..140).filter(|number| *number != 3).collect();
        assert_eq!(all, expected);
        let state = queue.state();
        assert!(state.small.bodies.is_empty() && state.large.bodies.is_empty());
    }
}
