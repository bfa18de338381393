//! The sources of one copy, in the order in which they are queried.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use floe_transfer::{Cancel, Error, RetryPolicy, Session, Source, SourceContext, StoreConfig};

/// All sources of a copy, in the order in which they are queried.
#[derive(Debug)]
pub struct Sources {
    /// The opened sources.
    pub list: Vec<Arc<dyn Source>>,
    /// The sources that could not be opened, by their store URIs without credentials, with the
    /// causes.
    pub unavailable: Vec<(String, Arc<Error>)>,
    /// Whether the target has everything, so that no source was opened.
    pub(crate) are_unneeded: bool,
    /// When a failed transfer is repeated.
    retry: RetryPolicy,
    /// The faults of each source in transfers.
    faults: Vec<SourceFaults>,
}

/// The faults of a source in transfers.
#[derive(Debug, Default)]
struct SourceFaults {
    /// The transfers that failed since the last one that succeeded.
    in_a_row: AtomicU32,
    is_avoided: AtomicBool,
}

/// Sources that have begun to open.
#[derive(Debug)]
pub(crate) struct OpeningSources {
    sources: Sources,
    /// A message for each source that is open or has failed.
    replies: Receiver<()>,
    order: SourceOrder,
    cancel: Cancel,
}

/// The order in which sources are queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// The order of the list, in which the user has named the sources.
    AsListed,
    /// The order of the priorities of substituters: that in the store URI, or else that of the
    /// cache itself. Sources of equal priority keep the order of the list.
    ByPriority,
}

impl Sources {
    /// Makes a list of open sources. `retry` says when a failed transfer is repeated, unless the
    /// source has a policy of its own.
    pub fn new(list: Vec<Arc<dyn Source>>, retry: RetryPolicy) -> Sources {
        let faults = list.iter().map(|_| SourceFaults::default()).collect();
        Sources {
            list,
            unavailable: Vec::new(),
            are_unneeded: false,
            retry,
            faults,
        }
    }

    /// Makes an empty list for a target that has everything.
    pub(crate) fn none_needed() -> Sources {
        Sources {
            are_unneeded: true,
            ..Sources::new(Vec::new(), RetryPolicy::default())
        }
    }

    /// Returns the policy for transfers from one source.
    pub(crate) fn retry_policy(&self, source: usize) -> RetryPolicy {
        let own = self.list[source].facts().retry_policy;
        own.unwrap_or_else(|| self.retry.clone())
    }

    /// Whether a path may also come from another source.
    pub(crate) fn have_alternative_to(&self, source: usize) -> bool {
        let mut others = (0..self.list.len()).filter(|other| *other != source);
        others.any(|other| !self.is_avoided(other) && self.is_open(other))
    }

    fn is_open(&self, source: usize) -> bool {
        matches!(self.list[source].open_result(), Some(Ok(())))
    }

    /// Whether transfers from a source have failed so often that the copy uses others.
    pub(crate) fn is_avoided(&self, source: usize) -> bool {
        self.faults[source].is_avoided.load(Ordering::Relaxed)
    }

    /// Records that a transfer from a source succeeded.
    pub(crate) fn record_success(&self, source: usize) {
        self.faults[source].in_a_row.store(0, Ordering::Relaxed);
    }

    /// Records that a transfer from a source failed. Returns whether the copy avoids the source
    /// from now on.
    pub(crate) fn record_fault(&self, source: usize) -> bool {
        let faults = &self.faults[source];
        let in_a_row = faults.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        in_a_row >= FAULTS_MAX
            && self.have_alternative_to(source)
            && !faults.is_avoided.swap(true, Ordering::Relaxed)
    }

    /// Opens sources. A source that cannot be opened is left out: see [`Sources::unavailable`].
    ///
    /// If a source can be used, the copy does not wait long for the others. It queries each of them
    /// once that has replied.
    ///
    /// Errors: that of the first source, if none can be used; one that concerns all sources, such
    /// as an invalid proxy; [`Error::Cancelled`].
    pub fn open(
        stores: &[Arc<dyn StoreConfig>],
        order: SourceOrder,
        session: &Session,
    ) -> Result<Sources, Error> {
        Sources::begin_open(stores, order, session)?.wait()
    }

    /// Begins to open sources: connects to caches, and does not wait for them.
    ///
    /// Errors: one that concerns all sources.
    pub(crate) fn begin_open(
        stores: &[Arc<dyn StoreConfig>],
        order: SourceOrder,
        session: &Session,
    ) -> Result<OpeningSources, Error> {
        let (opened, replies) = channel();
        let context = SourceContext {
            session,
            are_substituters: order == SourceOrder::ByPriority,
            opened,
        };
        let mut sources = Sources::new(Vec::new(), RetryPolicy::default());
        for store in stores {
            match store.open_source(&context) {
                Ok(source) => sources.list.push(source),
                Err(Error::OfKind(failure)) if failure.concerns_all_sources() => {
                    return Err(Error::OfKind(failure));
                }
                Err(error) => sources.unavailable.push((store.to_string(), error.into())),
            }
        }
        drop(context);
        Ok(OpeningSources {
            sources,
            replies,
            order,
            cancel: session.cancel.clone(),
        })
    }

    /// Waits until all sources are open or have failed. If one can be used, waits only for the
    /// grace period.
    fn wait_until_usable(&self, replies: &Receiver<()>, cancel: &Cancel) -> Result<(), Error> {
        let began = Instant::now();
        let mut usable_since = None;
        loop {
            let results = || self.list.iter().map(|source| source.open_result());
            if results().all(|state| state.is_some()) {
                return Ok(());
            }
            if results().any(|state| matches!(state, Some(Ok(())))) {
                let since = *usable_since.get_or_insert_with(Instant::now);
                let grace_period = since.duration_since(began).clamp(GRACE_MIN, GRACE_MAX);
                if since.elapsed() >= grace_period {
                    return Ok(());
                }
            }
            if cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            // A disconnected channel means that all sources have replied; the loop notices it
            // above.
            let _: Result<(), _> = replies.recv_timeout(OPEN_POLL);
        }
    }

    /// Removes the sources that cannot be used, and sorts the others. Sources that are still
    /// opening come last.
    fn drop_unavailable(mut self, order: SourceOrder) -> Result<Sources, Error> {
        for source in std::mem::take(&mut self.list) {
            match source.open_result() {
                Some(Err(error)) => self.unavailable.push((source.name(), error)),
                _ => self.list.push(source),
            }
        }
        if self.list.is_empty() {
            return Err(match self.unavailable.first() {
                Some((_, error)) => Error::SourceDisabled(error.clone()),
                None => Error::NoSources,
            });
        }
        self.faults = self.list.iter().map(|_| SourceFaults::default()).collect();
        self.list.sort_by_key(|source| {
            let is_opening = source.open_result().is_none();
            let priority = match order {
                SourceOrder::AsListed => 0,
                SourceOrder::ByPriority => source.facts().priority,
            };
            (is_opening, priority)
        });
        Ok(self)
    }
}

impl OpeningSources {
    /// Waits until all sources are open or have failed. If one can be used, waits only for the
    /// grace period.
    ///
    /// Errors: those of [`Sources::open`].
    pub(crate) fn wait(self) -> Result<Sources, Error> {
        self.sources
            .wait_until_usable(&self.replies, &self.cancel)?;
        self.sources.drop_unavailable(self.order)
    }
}

/// How many transfers in a row must fail at a source before the copy avoids it.
const FAULTS_MAX: u32 = 3;

/// How long slow sources may take after one can be used: as long again as that one took, within
/// these bounds. The longest is longer than a connection around the world takes.
const GRACE_MIN: Duration = Duration::from_millis(200);
const GRACE_MAX: Duration = Duration::from_secs(1);

/// How often the wait for sources checks for a cancellation and the end of the grace period.
const OPEN_POLL: Duration = Duration::from_millis(20);
