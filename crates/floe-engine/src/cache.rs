//! Where closures come from: binary caches over HTTP or in a directory, and local stores.

mod closure;
pub(crate) mod file;
pub(crate) mod http;

use std::sync::mpsc;

use floe_format::path_info::PathInfo;
use floe_format::{Compression, NarInfo, StoreDir, StorePath};
use floe_store::StoreReader;

use crate::body::Body;
use crate::error::Error;
use crate::location::Location;
use crate::options::{Cancel, NetworkOptions};
use file::FileCache;
use http::{HttpCache, Network};

/// One source of paths.
#[derive(Debug)]
pub struct Source(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Http(HttpCache),
    File(FileCache),
    Store(Box<StoreReader>),
}

/// All sources of a move, in the order in which they are asked.
#[derive(Debug)]
pub struct Sources {
    pub(crate) list: Vec<Source>,
    /// Present as long as a source needs it; the last to be dropped.
    network: Option<Network>,
    /// How often a transfer is made in all before it has failed.
    pub(crate) attempts: u32,
}

/// What a source says about a path; `None`: it does not have it.
pub(crate) type Answer = Result<Option<NarInfo>, Error>;

impl Sources {
    /// Opens sources.
    ///
    /// Errors: those of the first source that cannot be opened.
    pub fn open(
        locations: &[Location],
        options: &NetworkOptions,
        cancel: &Cancel,
    ) -> Result<Sources, Error> {
        let mut network: Option<Network> = None;
        let mut list = Vec::new();
        for location in locations {
            list.push(Source(match location {
                Location::Store(layout) => {
                    Kind::Store(Box::new(StoreReader::open(layout.clone())?))
                }
                Location::File(file) => Kind::File(FileCache::open(&file.directory)?),
                Location::Http(url) => {
                    let network = match &mut network {
                        Some(network) => network,
                        None => network.insert(Network::start(options)?),
                    };
                    Kind::Http(HttpCache::open(url, network, cancel)?)
                }
            }));
        }
        Ok(Sources {
            list,
            network,
            attempts: options.attempts,
        })
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
        match &self.0 {
            Kind::Http(cache) => cache.name(),
            Kind::File(cache) => format!("file://{}", cache.directory().display()),
            Kind::Store(store) => store.layout().real_store.display().to_string(),
        }
    }

    /// The store directory that its paths name.
    pub fn store_dir(&self) -> &StoreDir {
        match &self.0 {
            Kind::Http(cache) => cache.store_dir(),
            Kind::File(cache) => cache.store_dir(),
            Kind::Store(store) => &store.layout().store_dir,
        }
    }

    /// The local store, if it is one.
    pub fn as_store(&self) -> Option<&StoreReader> {
        match &self.0 {
            Kind::Store(store) => Some(store),
            _ => None,
        }
    }

    /// Asks for the path with a hash part. The answer goes to `answers` together with the tag,
    /// perhaps before this function returns.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        hash_part: &str,
        tag: T,
        answers: &mpsc::Sender<(T, Answer)>,
    ) {
        let answer = match &self.0 {
            Kind::Http(cache) => return cache.ask(hash_part, tag, answers),
            Kind::File(cache) => cache.narinfo(hash_part),
            Kind::Store(store) => ask_store(store, hash_part),
        };
        // Nobody listens any more only when the move has failed already.
        let _: Result<(), _> = answers.send((tag, answer));
    }

    /// What the source knows of the path with a hash part; `None` if it does not have it.
    pub fn lookup(&self, hash_part: &str) -> Result<Option<NarInfo>, Error> {
        let (sender, receiver) = mpsc::channel();
        self.ask(hash_part, (), &sender);
        drop(sender);
        receiver
            .recv()
            .map_or(Err(Error::Cancelled), |((), answer)| answer)
    }

    /// Every path of the source, where it can tell.
    pub fn all_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        match &self.0 {
            Kind::Http(_) => Ok(None),
            Kind::File(cache) => cache.all_paths().map(Some),
            Kind::Store(store) => Ok(Some(store.valid_paths()?)),
        }
    }

    /// Begins to fetch the NAR that a narinfo of this source describes. `None` for a local
    /// store, whose trees are read by the worker itself. A `small` body is fetched whole before
    /// the first byte is handed out.
    pub(crate) fn fetch(&self, narinfo: &NarInfo, small: bool) -> Result<Option<Body>, Error> {
        match &self.0 {
            Kind::Http(cache) => cache.fetch(&narinfo.url, small).map(Some),
            Kind::File(cache) => cache.open_nar(&narinfo.url).map(Some),
            Kind::Store(_) => Ok(None),
        }
    }
}

/// A local store's answer, in the form of a cache's: an uncompressed NAR that has no file.
fn ask_store(store: &StoreReader, hash_part: &str) -> Answer {
    let Some(path) = store.path_of_hash_part(hash_part)? else {
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
    Ok(Some(NarInfo {
        info,
        url,
        compression: Compression::None,
        file_hash: None,
        file_size: None,
    }))
}
