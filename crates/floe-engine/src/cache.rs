//! Where closures come from: binary caches over HTTP or in a directory, and local stores.

mod closure;
pub(crate) mod file;
pub(crate) mod http;
mod narinfo_disk_cache;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use floe_format::path_info::PathInfo;
use floe_format::{Compression, NarInfo, StoreDir, StorePath};
use floe_store::{LockWait, StoreReader};

use crate::body::Body;
use crate::cancel::{CANCEL_POLL, Cancel};
use crate::error::Error;
use crate::options::NetworkOptions;
use crate::store_uri::StoreUri;
use file::FileCache;
use http::{HttpCache, Network};
use narinfo_disk_cache::NarInfoDiskCache;

/// One source of paths.
#[derive(Debug)]
pub struct Source {
    pub(crate) kind: Kind,
    /// Its paths need no signature (`trusted`).
    pub(crate) is_trusted: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Http(HttpCache),
    File(FileCache),
    /// With its priority.
    Store(Box<StoreReader>, i32),
}

/// All sources of a move, in the order in which they are asked.
#[derive(Debug)]
pub struct Sources {
    pub(crate) list: Vec<Source>,
    /// Those that could not be opened, and why not.
    unavailable: Vec<(String, Arc<Error>)>,
    /// Present as long as a source needs it; the last to be dropped.
    network: Option<Network>,
    /// How often a transfer is made in all before it has failed.
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

/// What a source says about a path; `None`: it does not have it.
pub(crate) type NarInfoResult = Result<Option<NarInfoReply>, Error>;

/// What a source has told of a path.
#[derive(Debug)]
pub(crate) struct NarInfoReply {
    pub(crate) narinfo: NarInfo,
    /// It was not asked now, but in an earlier move.
    pub(crate) from_disk_cache: bool,
}

/// What still counts of that which a cache has answered some time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachePolicy {
    /// All of it.
    Use,
    /// That it has a path, and what it says of it; not that it lacks one.
    HitsOnly,
    /// Nothing: it is asked now.
    Bypass,
}

impl From<NarInfo> for NarInfoReply {
    /// What was found just now.
    fn from(narinfo: NarInfo) -> NarInfoReply {
        NarInfoReply {
            narinfo,
            from_disk_cache: false,
        }
    }
}

/// Waits for locks in the way of whoever asks sources.
fn lock_wait(options: &NetworkOptions, cancel: &Cancel) -> LockWait {
    let events = options.events.clone();
    LockWait::new(cancel.flag(), move |what| events.waiting_for(what))
}

impl Sources {
    /// Opens sources. Those that cannot be opened are left out: see [`Sources::unavailable`];
    /// a cache that takes long to answer is not waited for where another one can be used, and is
    /// asked when it has answered.
    ///
    /// Errors: that of the first source, if none can be used; [`Error::Cancelled`].
    pub fn open(
        locations: &[StoreUri],
        order: SourceOrder,
        options: &NetworkOptions,
        cancel: &Cancel,
    ) -> Result<Sources, Error> {
        let mut sources = Sources {
            list: Vec::new(),
            unavailable: Vec::new(),
            network: None,
            attempts: options.attempts,
        };
        let (opened_signal, answers) = mpsc::channel();
        let mut disk_cache = None;
        for location in locations {
            if let (StoreUri::Http(_), None) = (location, &sources.network) {
                sources.network = Some(Network::start(options)?);
                let file = options.narinfo_disk_cache.as_ref();
                disk_cache = file.and_then(NarInfoDiskCache::open).map(Arc::new);
            }
            let opened = match (location, &sources.network) {
                (StoreUri::Http(http), Some(network)) => {
                    let (disk_cache, opened_signal) = (disk_cache.clone(), opened_signal.clone());
                    HttpCache::start_opening(http, network, disk_cache, opened_signal)
                        .map(Kind::Http)
                }
                (StoreUri::Http(_), None) => Err(Error::Cancelled),
                (StoreUri::Local(store), _) => {
                    StoreReader::open_with(store.layout.clone(), lock_wait(options, cancel))
                        .map(|reader| Kind::Store(Box::new(reader), store.priority))
                        .map_err(Error::from)
                }
                (StoreUri::File(file), _) => FileCache::open(file).map(Kind::File),
            };
            match opened {
                Ok(kind) => {
                    let is_trusted = location.is_trusted();
                    sources.list.push(Source { kind, is_trusted });
                }
                Err(error) => sources
                    .unavailable
                    .push((location.to_string(), Arc::new(error))),
            }
        }
        drop(opened_signal);
        sources.wait_until_usable(&answers, cancel)?;
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
            let results = || self.list.iter().map(Source::open_result);
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
        if let Some(network) = &self.network {
            network.abort();
        }
    }

    /// The opened sources.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.list.iter()
    }
}

impl Source {
    /// Its address, without credentials.
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::Http(cache) => cache.name(),
            Kind::File(cache) => format!("file://{}", cache.directory().display()),
            Kind::Store(store, _) => store.layout().real_store_dir.display().to_string(),
        }
    }

    /// `None`: that is not known yet.
    fn open_result(&self) -> Option<Result<(), Arc<Error>>> {
        match &self.kind {
            Kind::Http(cache) => Some(cache.open_result()?.map(|_| ())),
            Kind::File(_) | Kind::Store(..) => Some(Ok(())),
        }
    }

    /// The lower, the sooner it is asked.
    fn priority(&self) -> i32 {
        match &self.kind {
            Kind::Http(cache) => cache.priority(),
            Kind::File(cache) => cache.priority(),
            Kind::Store(_, priority) => *priority,
        }
    }

    /// Whether its paths are for that store directory, as far as is known yet.
    pub(crate) fn is_for(&self, dir: &StoreDir) -> bool {
        !matches!(self.open_result(), Some(Ok(()))) || self.store_dir() == dir
    }

    /// The store directory that its paths name; the usual one if it has not answered yet.
    pub fn store_dir(&self) -> &StoreDir {
        match &self.kind {
            Kind::Http(cache) => cache.store_dir(),
            Kind::File(cache) => cache.store_dir(),
            Kind::Store(store, _) => &store.layout().store_dir,
        }
    }

    /// The local store, if it is one.
    pub fn as_store(&self) -> Option<&StoreReader> {
        match &self.kind {
            Kind::Store(store, _) => Some(store),
            _ => None,
        }
    }

    /// Asks for the path with a hash part. The answer goes to `answers` together with the tag,
    /// perhaps before this function returns.
    pub(crate) fn query<T: Send + 'static>(
        &self,
        hash_part: &str,
        policy: CachePolicy,
        tag: T,
        answers: &mpsc::Sender<(T, NarInfoResult)>,
    ) {
        let answer = match &self.kind {
            Kind::Http(cache) => return cache.query(hash_part, policy, tag, answers),
            Kind::File(cache) => cache.narinfo(hash_part),
            Kind::Store(store, _) => query_store(store, hash_part),
        };
        // Nobody listens any more only when the move has failed already.
        let _: Result<(), _> = answers.send((tag, answer));
    }

    /// What the source knows of the path with a hash part, asked afresh; `None` if it does not have
    /// it.
    pub fn query_path_info(
        &self,
        hash_part: &str,
        cancel: &Cancel,
    ) -> Result<Option<NarInfo>, Error> {
        let (sender, receiver) = mpsc::channel();
        self.query(hash_part, CachePolicy::Bypass, (), &sender);
        drop(sender);
        loop {
            match receiver.recv_timeout(CANCEL_POLL) {
                Ok(((), answer)) => return Ok(answer?.map(|told| told.narinfo)),
                Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => {}
                Err(_) => return Err(Error::Cancelled),
            }
        }
    }

    /// Every path of the source, where it can tell.
    pub fn all_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        match &self.kind {
            Kind::Http(_) => Ok(None),
            Kind::File(cache) => cache.all_paths().map(Some),
            Kind::Store(store, _) => Ok(Some(store.valid_paths()?)),
        }
    }

    /// Begins to fetch the NAR that a narinfo of this source describes. `None` for a local
    /// store, whose trees are read by the worker itself. A `small` body is fetched whole before
    /// the first byte is handed out.
    pub(crate) fn fetch(&self, narinfo: &NarInfo, small: bool) -> Result<Option<Body>, Error> {
        match &self.kind {
            Kind::Http(cache) => cache.fetch(&narinfo.url, small).map(Some),
            Kind::File(cache) => cache.open_nar(&narinfo.url).map(Some),
            Kind::Store(..) => Ok(None),
        }
    }

    /// The same for a large body whose worker comes later; `None` if that would hold others up.
    pub(crate) fn prefetch(&self, narinfo: &NarInfo) -> Option<Result<Option<Body>, Error>> {
        match &self.kind {
            Kind::Http(cache) => {
                let body = cache.prefetch(&narinfo.url)?;
                Some(body.map(Some))
            }
            Kind::File(_) | Kind::Store(..) => Some(self.fetch(narinfo, false)),
        }
    }
}

/// A local store's answer, in the form of a cache's: an uncompressed NAR that has no file.
fn query_store(store: &StoreReader, hash_part: &str) -> NarInfoResult {
    let Some(path) = store.query_path_from_hash_part(hash_part)? else {
        return Ok(None);
    };
    let Some(info) = store.path_info(&path)? else {
        return Ok(None);
    };
    let url = store.real_path(&path).display().to_string();
    let info = PathInfo {
        registration_time: None,
        ultimate: false,
        ..info
    };
    let narinfo = NarInfo {
        info,
        url,
        compression: Compression::None,
        file_hash: None,
        file_size: None,
    };
    Ok(Some(narinfo.into()))
}

/// That of who does not say, as in Nix: the default of its setting `priority`, in `store-api.hh`.
const DEFAULT_PRIORITY: i32 = 0;

/// How long the slow have when one that can be used has answered: more than a round trip around
/// the world with its handshakes, and less than a person notices much.
const STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// How soon a raised flag, or the end of the grace, is noticed while nobody answers.
const OPEN_POLL: Duration = Duration::from_millis(20);
