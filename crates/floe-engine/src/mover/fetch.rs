//! The order of work, and bodies ahead of it.
//!
//! A large body is asked for one turn ahead, and asked for again at no charge if its server has
//! lost patience when its turn comes. A small one is fetched
//! whole as soon as there is room, so that a closure of many small paths does not cost a round
//! trip for each; it waits in memory, not in a connection that its server would give up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use floe_format::StorePath;

use super::Item;
use crate::body::Body;
use crate::cache::Sources;
use crate::cache::http::{CONNECTIONS_MAX, SMALL_LEN_MAX};
use crate::error::Error;

/// Items in the order of the plan, handed out one by one.
pub(crate) struct Queue<'a> {
    sources: &'a Sources,
    items: &'a [Item],
    jobs: usize,
    state: Mutex<State>,
}

/// One path's turn.
pub(crate) struct Work<'a> {
    pub(crate) item: &'a Item,
    pub(crate) body: Result<Option<Body>, Error>,
    /// The body was asked for long ahead, and its server may have lost patience.
    pub(crate) waited: bool,
}

#[derive(Default)]
struct State {
    next: usize,
    /// Bodies that were asked for ahead of their turn.
    ahead: HashMap<usize, (Instant, Result<Option<Body>, Error>)>,
    small: VecDeque<usize>,
    large: VecDeque<usize>,
    small_ahead: usize,
    large_ahead: usize,
    skipped: HashSet<StorePath>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(sources: &'a Sources, items: &'a [Item], jobs: NonZeroUsize) -> Queue<'a> {
        let (small, large) = (0..items.len()).partition(|index| is_small(&items[*index]));
        let state = State {
            small,
            large,
            ..State::default()
        };
        Queue {
            sources,
            items,
            jobs: jobs.get(),
            state: Mutex::new(state),
        }
    }

    /// All items, in the order of the plan.
    pub(crate) fn items(&self) -> &'a [Item] {
        self.items
    }

    /// The next item and its body; `None` when there are no more. A body may be absent: then
    /// the source is a local store.
    pub(crate) fn next(&self) -> Option<Work<'a>> {
        let mut state = self.state();
        loop {
            let index = state.next;
            let item = self.items.get(index)?;
            state.next += 1;
            let ahead = state.ahead.remove(&index);
            if ahead.is_some() {
                match is_small(item) {
                    true => state.small_ahead -= 1,
                    false => state.large_ahead -= 1,
                }
            }
            if state.skipped.contains(&item.narinfo.info.path) {
                continue;
            }
            let (waited, body) = match ahead {
                Some((asked, body)) => (asked.elapsed() > PATIENCE, body),
                None => (false, self.open(item)),
            };
            self.ask_ahead(&mut state);
            return Some(Work { item, body, waited });
        }
    }

    /// Begins to fetch an item's body, once more if need be.
    pub(crate) fn open(&self, item: &Item) -> Result<Option<Body>, Error> {
        self.sources.list[item.source].fetch(&item.narinfo, is_small(item))
    }

    /// Leaves out paths that nobody has taken yet.
    pub(crate) fn skip(&self, paths: impl IntoIterator<Item = StorePath>) {
        self.state().skipped.extend(paths);
    }

    /// Hands out nothing more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.next = self.items.len();
        state.ahead.clear();
    }

    fn ask_ahead(&self, state: &mut State) {
        while state.small_ahead < CONNECTIONS_MAX
            && let Some(index) = state.small.pop_front()
        {
            if self.ask_one_ahead(state, index) {
                state.small_ahead += 1;
            }
        }
        while state.large_ahead < self.jobs
            && let Some(index) = state.large.pop_front()
        {
            if self.ask_one_ahead(state, index) {
                state.large_ahead += 1;
            }
        }
    }

    /// `false` if the item's turn has come already, or will not come.
    fn ask_one_ahead(&self, state: &mut State, index: usize) -> bool {
        let item = &self.items[index];
        if index < state.next || state.skipped.contains(&item.narinfo.info.path) {
            return false;
        }
        state.ahead.insert(index, (Instant::now(), self.open(item)));
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_small(item: &Item) -> bool {
    item.narinfo
        .file_size
        .is_some_and(|size| size <= SMALL_LEN_MAX as u64)
}

/// Servers that close a connection because nobody reads wait for longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
