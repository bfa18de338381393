//! The order of work, and bodies ahead of it.
//!
//! Items are taken from both ends of the plan, largest first and smallest first, until the two
//! meet.
//!
//! A large body is asked for one turn ahead, and asked for again at no charge if its server has
//! lost patience when its turn comes. A small one is fetched
//! whole as soon as there is room, so that a closure of many small paths does not cost a round
//! trip for each; it waits in memory, not in a connection that its server would give up.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use floe_format::StorePath;

use super::Item;
use crate::body::Body;
use crate::cache::Sources;
use crate::cache::http::{CONNECTIONS_MAX, SMALL_LEN_MAX};
use crate::error::Error;

/// Items in the order of the plan, handed out one by one from its ends.
pub(crate) struct Queue<'a> {
    sources: &'a Sources,
    items: &'a [Item],
    jobs: usize,
    state: Mutex<State>,
}

/// Which end of the plan somebody takes items from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The largest that are left: they take longest.
    Largest,
    /// The smallest that are left.
    Smallest,
}

impl End {
    fn pop(self, indexes: &mut VecDeque<usize>) -> Option<usize> {
        match self {
            End::Largest => indexes.pop_front(),
            End::Smallest => indexes.pop_back(),
        }
    }
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
    /// The items that nobody has taken.
    left: Range<usize>,
    /// Bodies that were asked for ahead of their turn.
    ahead: HashMap<usize, (Instant, Result<Option<Body>, Error>)>,
    small: VecDeque<usize>,
    large: VecDeque<usize>,
    small_ahead: usize,
    large_ahead: usize,
    skipped: HashSet<StorePath>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(sources: &'a Sources, items: &'a [Item], jobs: usize) -> Queue<'a> {
        let (small, large) = (0..items.len()).partition(|index| is_small(&items[*index]));
        let state = State {
            left: 0..items.len(),
            small,
            large,
            ..State::default()
        };
        Queue {
            sources,
            items,
            jobs,
            state: Mutex::new(state),
        }
    }

    /// All items, in the order of the plan.
    pub(crate) fn items(&self) -> &'a [Item] {
        self.items
    }

    /// The next item and its body; `None` when there are no more. A body may be absent: then
    /// the source is a local store.
    pub(crate) fn next(&self, end: End) -> Option<Work<'a>> {
        let mut state = self.state();
        loop {
            let index = match end {
                End::Largest => state.left.next(),
                End::Smallest => state.left.next_back(),
            }?;
            let item = &self.items[index];
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
            self.ask_ahead(&mut state, end);
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
        state.left = 0..0;
        state.ahead.clear();
    }

    fn ask_ahead(&self, state: &mut State, end: End) {
        while state.small_ahead < CONNECTIONS_MAX
            && let Some(index) = end.pop(&mut state.small)
        {
            if self.ask_one_ahead(state, index) {
                state.small_ahead += 1;
            }
        }
        while state.large_ahead < self.jobs
            && let Some(index) = end.pop(&mut state.large)
        {
            if self.ask_one_ahead(state, index) {
                state.large_ahead += 1;
            }
        }
    }

    /// `false` if the item's turn has come already, or will not come.
    fn ask_one_ahead(&self, state: &mut State, index: usize) -> bool {
        let item = &self.items[index];
        if !state.left.contains(&index) || state.skipped.contains(&item.narinfo.info.path) {
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
