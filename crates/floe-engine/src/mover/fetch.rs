//! The order of work, and bodies ahead of it.
//!
//! Items are taken from both ends of the plan, largest first and smallest first, until the two
//! meet.
//!
//! A large body is asked for one turn ahead, where a connection is to spare, and asked for again at
//! no charge if its server has lost patience when its turn comes. A small one is fetched
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
use crate::cache::http::{SMALL_AHEAD_MAX, SMALL_LEN_MAX};
use crate::codec::Memory;
use crate::error::Error;

/// Items in the order of the plan, handed out one by one from its ends.
pub(crate) struct Queue<'a> {
    sources: &'a Sources,
    items: &'a [Item],
    jobs: usize,
    memory: Memory,
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
    fn peek(self, indexes: &VecDeque<usize>) -> Option<usize> {
        match self {
            End::Largest => indexes.front().copied(),
            End::Smallest => indexes.back().copied(),
        }
    }

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
    is_closed: bool,
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
            memory: Memory::new(DECODER_MEMORY),
            state: Mutex::new(state),
        }
    }

    /// What the decoders of all workers may remember.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// All items, in the order of the plan.
    pub(crate) fn items(&self) -> &'a [Item] {
        self.items
    }

    /// The next item and its body; `None` when there are no more. A body may be absent: then
    /// the source is a local store, or the path is to be looked for in other stores first.
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
                Some((asked, body)) => (!is_small(item) && asked.elapsed() > PATIENCE, body),
                None if item.is_here() => (false, Ok(None)),
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

    /// Leaves out paths that nobody has taken yet; for those that somebody has, no attempt is
    /// made again.
    pub(crate) fn skip(&self, paths: impl IntoIterator<Item = StorePath>) {
        self.state().skipped.extend(paths);
    }

    /// Hands out nothing more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.left = 0..0;
        state.ahead.clear();
    }

    /// Whether a path that somebody has taken is still of use.
    pub(crate) fn is_wanted(&self, path: &StorePath) -> bool {
        let state = self.state();
        !state.is_closed && !state.skipped.contains(path)
    }

    /// Large bodies come first: they take a connection only where one is to spare, and small ones
    /// wait for theirs.
    fn ask_ahead(&self, state: &mut State, end: End) {
        while state.large_ahead < self.jobs
            && let Some(index) = end.peek(&state.large)
        {
            if self.is_to_fetch(state, index) {
                let item = &self.items[index];
                let source = &self.sources.list[item.source];
                // What is not asked for ahead is asked for when its turn comes.
                let Some(body) = source.fetch_ahead(&item.narinfo) else {
                    break;
                };
                state.ahead.insert(index, (Instant::now(), body));
                state.large_ahead += 1;
            }
            end.pop(&mut state.large);
        }
        while state.small_ahead < SMALL_AHEAD_MAX
            && let Some(index) = end.pop(&mut state.small)
        {
            if self.is_to_fetch(state, index) {
                let body = self.open(&self.items[index]);
                state.ahead.insert(index, (Instant::now(), body));
                state.small_ahead += 1;
            }
        }
    }

    /// `false` if the item's turn has come already, or will not come, or need not be fetched.
    fn is_to_fetch(&self, state: &State, index: usize) -> bool {
        let item = &self.items[index];
        let is_skipped = state.skipped.contains(&item.narinfo.info.path);
        state.left.contains(&index) && !is_skipped && !item.is_here()
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

/// What decoders may remember together in large windows, in bytes: as much as one may alone.
const DECODER_MEMORY: u64 = crate::codec::WINDOW_LEN_MAX;

/// Servers that close a connection because nobody reads wait for longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs;

    use floe_format::{NarInfo, StoreDir};

    use super::*;
    use crate::cache::Order;
    use crate::cancel::Cancel;
    use crate::location::Location;
    use crate::options::NetworkOptions;

    /// An item of `len` bytes, the `number`th of a plan, from a cache whose NARs are empty.
    fn item(number: usize, len: u64) -> Item {
        let hash = "sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s";
        let text = format!(
            "StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-{number}\nURL: nar\n\
             Compression: none\nFileSize: {len}\nNarHash: {hash}\nNarSize: {len}\n\
             References: \n"
        );
        Item {
            narinfo: NarInfo::parse(text.as_bytes(), &StoreDir::default()).unwrap(),
            source: 0,
            places: Vec::new(),
            is_left: false,
        }
    }

    #[test]
    fn ends_meet_in_the_middle_and_every_item_is_taken_once() {
        let cache = tempfile::tempdir().unwrap();
        fs::write(
            cache.path().join("nix-cache-info"),
            "StoreDir: /nix/store\n",
        )
        .unwrap();
        fs::write(cache.path().join("nar"), "").unwrap();
        let url = format!("file://{}", cache.path().display());
        let location = Location::parse(&url, None, None).unwrap();
        let sources = Sources::open(
            &[location],
            Order::AsGiven,
            &NetworkOptions::default(),
            &Cancel::default(),
        )
        .unwrap();
        let large = SMALL_LEN_MAX as u64 * 2;
        // More than may be asked for ahead, of both kinds.
        let len_of = |number| if number < 40 { large } else { 100 };
        let items: Vec<Item> = (0..140)
            .map(|number| item(number, len_of(number)))
            .collect();
        let queue = Queue::new(&sources, &items, 2);
        queue.skip([items[3].narinfo.info.path.clone()]);
        let (mut largest, mut smallest) = (Vec::new(), Vec::new());
        loop {
            let (end, taken) = match largest.len() <= smallest.len() {
                true => (End::Largest, &mut largest),
                false => (End::Smallest, &mut smallest),
            };
            let Some(work) = queue.next(end) else { break };
            assert!(matches!(work.body, Ok(Some(_))));
            let name = work.item.narinfo.info.path.name();
            taken.push(name.parse::<usize>().unwrap());
        }
        assert!(largest.is_sorted() && smallest.is_sorted_by(|a, b| a > b));
        assert!(largest.len().abs_diff(smallest.len()) <= 1);
        let mut all = [largest, smallest].concat();
        all.sort_unstable();
        let expected: Vec<usize> = (0..140).filter(|number| *number != 3).collect();
        assert_eq!(all, expected);
        let state = queue.state();
        assert_eq!((state.small_ahead, state.large_ahead), (0, 0));
        assert!(state.ahead.is_empty());
    }
}
