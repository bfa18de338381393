//! The sources of one copy, in the order in which they are queried.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use floe_cache::{Network, NetworkOptions};
use floe_transfer::{Cancel, Error, Source};

use crate::store_config::{SourceContext, StoreConfig};

/// All sources of a copy, in the order in which they are queried.
#[derive(Debug)]
pub struct Sources {
    /// The opened sources.
    pub list: Vec<Arc<dyn Source>>,
    /// The sources that could not be opened, by their store URIs without credentials, with the
    /// causes.
    pub unavailable: Vec<(String, Arc<Error>)>,
    /// The number of attempts of a transfer.
    pub(crate) attempts: u32,
    /// The network of the caches, if this opened them.
    network: Option<Arc<Network>>,
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
    /// Makes a list of open sources. A failing transfer gets `attempts` attempts.
    pub fn new(list: Vec<Arc<dyn Source>>, attempts: u32) -> Sources {
        Sources {
            list,
            unavailable: Vec::new(),
            attempts,
            network: None,
        }
    }

    /// Opens sources. A source that cannot be opened is left out: see [`Sources::unavailable`].
    ///
    /// If a source can be used, the copy does not wait long for the others. It queries each of them
    /// once that has replied.
    ///
    /// Errors: that of the first source, if none can be used; those of [`Network::start`];
    /// [`Error::Cancelled`].
    pub fn open(
        stores: &[Arc<dyn StoreConfig>],
        order: SourceOrder,
        options: &NetworkOptions,
        cancel: &Cancel,
    ) -> Result<Sources, Error> {
        let network = match stores.iter().any(|store| store.uses_network()) {
            true => Some(Network::start(options)?),
            false => None,
        };
        let (opened, replies) = channel();
        let context = SourceContext {
            network: network.as_ref(),
            are_substituters: order == SourceOrder::ByPriority,
            cancel,
            events: &options.events,
            opened,
        };
        let mut sources = Sources::new(Vec::new(), options.attempts);
        for store in stores {
            match store.open_source(&context) {
                Ok(source) => sources.list.push(source),
                Err(error) => sources.unavailable.push((store.to_string(), error.into())),
            }
        }
        drop(context);
        sources.network = network;
        sources.wait_until_usable(&replies, cancel)?;
        sources.drop_unavailable(order)
    }

    /// Waits until all sources are open or have failed. If one can be used, waits only for the
    /// grace period.
    fn wait_until_usable(&self, replies: &Receiver<()>, cancel: &Cancel) -> Result<(), Error> {
        let mut usable_since = None;
        loop {
            let results = || self.list.iter().map(|source| source.open_result());
            if results().all(|state| state.is_some()) {
                return Ok(());
            }
            if results().any(|state| matches!(state, Some(Ok(())))) {
                let since = usable_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= STARTUP_GRACE_PERIOD {
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
        self.list.sort_by_key(|source| {
            let is_opening = source.open_result().is_none();
            let priority = match order {
                SourceOrder::AsListed => 0,
                SourceOrder::ByPriority => source.priority(),
            };
            (is_opening, priority)
        });
        Ok(self)
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        if let Some(network) = &self.network {
            network.shut_down();
        }
    }
}

/// How long slow sources may take after one can be used: longer than a connection around the world,
/// and short enough for a user.
const STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// How often the wait for sources checks for a cancellation and the end of the grace period.
const OPEN_POLL: Duration = Duration::from_millis(20);
