//! The sources of one copy, in the order in which they are queried.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use floe_cache::{LazyNetwork, NetworkOptions};
use floe_transfer::{Cancel, Error, Source};

use crate::store_config::{SourceContext, StoreConfig};

/// All sources of a copy, in the order in which they are queried.
#[derive(Debug)]
pub struct Sources {
    pub(crate) list: Vec<Arc<dyn Source>>,
    /// The names of the sources that could not be opened, with the causes.
    unavailable: Vec<(String, Arc<Error>)>,
    /// How many attempts a transfer gets in all.
    pub(crate) attempts: u32,
}

/// In which order sources are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceOrder {
    /// In that of their addresses.
    AsListed,
    /// By their priority, which their address says or else they themselves; where that is the same,
    /// in that of their addresses.
    ByPriority,
}

impl Sources {
    /// Makes a list of sources that are open already. A transfer that fails is repeated until it
    /// has had `attempts` attempts.
    pub fn new(list: Vec<Arc<dyn Source>>, attempts: u32) -> Sources {
        Sources {
            list,
            unavailable: Vec::new(),
            attempts,
        }
    }

    /// Opens sources. A source that cannot be opened is left out: see [`Sources::unavailable`].
    ///
    /// If a source can be used, the copy does not wait long for the others. It queries each of them
    /// once that has replied.
    ///
    /// Errors: that of the first source, if none can be used; those of [`LazyNetwork::get`];
    /// [`Error::Cancelled`].
    pub fn open(
        stores: &[Arc<dyn StoreConfig>],
        order: SourceOrder,
        options: &NetworkOptions,
        cancel: &Cancel,
    ) -> Result<Sources, Error> {
        let network = LazyNetwork::new(options);
        if stores.iter().any(|store| store.uses_network()) {
            network.get()?;
        }
        let (opened, replies) = mpsc::channel();
        let context = SourceContext {
            network: &network,
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
        sources.wait_until_usable(&replies, cancel)?;
        sources.drop_unavailable(order)
    }

    /// Waits until it is known of all sources whether they can be used; not long if one of them
    /// can.
    fn wait_until_usable(
        &self,
        answers: &mpsc::Receiver<()>,
        cancel: &Cancel,
    ) -> Result<(), Error> {
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
            // A disconnection says that all are settled, which is seen above.
            let _: Result<(), _> = answers.recv_timeout(OPEN_POLL);
        }
    }

    /// Takes out those that cannot be used, and puts those first that can be by now.
    fn drop_unavailable(mut self, order: SourceOrder) -> Result<Sources, Error> {
        for source in std::mem::take(&mut self.list) {
            match source.open_result() {
                Some(Err(error)) => self.unavailable.push((source.name(), error)),
                _ => self.list.push(source),
            }
        }
        if self.list.is_empty() {
            return Err(match self.unavailable.into_iter().next() {
                Some((_, error)) => Error::SourceDisabled(error),
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

    /// The sources that could not be opened, by their addresses without credentials, and why.
    pub fn unavailable(&self) -> impl Iterator<Item = (&str, &Error)> {
        self.unavailable
            .iter()
            .map(|(name, error)| (name.as_str(), &**error))
    }

    /// Ends all transfers. The sources cannot be used afterwards.
    pub(crate) fn abort(&self) {
        for source in &self.list {
            source.abort();
        }
    }

    /// The opened sources.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Source> {
        self.list.iter().map(|source| &**source)
    }
}

/// How long the slow have when one that can be used has answered: more than a round trip around
/// the world with its handshakes, and less than a person notices much.
const STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// How soon a raised flag, or the end of the grace, is noticed while nobody answers.
const OPEN_POLL: Duration = Duration::from_millis(20);
