//! The implementations of [`Source`] and [`Target`], by the kind of their store URI.
//!
//! This is the only file that names them. A new backend adds one line to a `match` below.

use std::sync::{Arc, mpsc};

use floe_cache::{
    BinaryCacheWriter, FileCache, HttpCache, NarInfoDiskCache, Network, NetworkOptions,
    ReadOnlyCache,
};
use floe_format::StoreDir;
use floe_store::{LockWait, WriteOptions};
use floe_transfer::{Cancel, Error, HttpCacheUri, Source, StoreUri, Target, redact_credentials};

use crate::local::dry_run::ReadOnlyStore;
use crate::local::source::LocalSource;
use crate::local::target::LocalTarget;
use crate::sources::{SourceOrder, Sources};

impl Sources {
    /// Opens sources. A source that cannot be opened is left out: see [`Sources::unavailable`].
    ///
    /// A cache that is slow to answer is not waited for if another source can be used. It is
    /// queried when it has answered.
    ///
    /// Errors: that of the first source, if none can be used; [`Error::Cancelled`].
    pub fn open(
        uris: &[StoreUri],
        order: SourceOrder,
        options: &NetworkOptions,
        cancel: &Cancel,
    ) -> Result<Sources, Error> {
        let (opened_signal, opened) = mpsc::channel();
        let mut opener = SourceOpener {
            options,
            cancel,
            opened_signal,
            http: None,
        };
        let mut sources = Sources::new(Vec::new(), options.attempts);
        for uri in uris {
            opener.prepare(uri)?;
            match opener.open(uri) {
                Ok(source) => sources.list.push(source),
                Err(error) => sources.push_unavailable(uri.to_string(), error),
            }
        }
        drop(opener);
        sources.wait_until_usable(&opened, cancel)?;
        sources.drop_unavailable(order)
    }
}

/// Opens the sources of one copy.
struct SourceOpener<'a> {
    options: &'a NetworkOptions,
    cancel: &'a Cancel,
    /// Receives a message when a source that was still opening can be used, or cannot.
    opened_signal: mpsc::Sender<()>,
    /// Shared by all caches behind HTTP. Present after the first of them.
    http: Option<(Arc<Network>, Option<Arc<NarInfoDiskCache>>)>,
}

impl SourceOpener<'_> {
    /// Starts what the source shares with others. An error here ends the copy.
    fn prepare(&mut self, uri: &StoreUri) -> Result<(), Error> {
        if let (StoreUri::Http(_), None) = (uri, &self.http) {
            let network = Network::start(self.options)?;
            let file = self.options.narinfo_disk_cache.as_ref();
            let disk_cache = file.and_then(NarInfoDiskCache::open).map(Arc::new);
            self.http = Some((Arc::new(network), disk_cache));
        }
        Ok(())
    }

    /// Opens one source, or starts to open it.
    fn open(&self, uri: &StoreUri) -> Result<Arc<dyn Source>, Error> {
        Ok(match uri {
            StoreUri::Local(store) => Arc::new(LocalSource::open(store, self.lock_wait())?),
            StoreUri::File(file) => Arc::new(FileCache::open(file)?),
            StoreUri::Http(http) => {
                let (network, disk_cache) = self.http.as_ref().ok_or(Error::Cancelled)?;
                let signal = self.opened_signal.clone();
                let cache = HttpCache::start_opening(http, network, disk_cache.clone(), signal)?;
                Arc::new(cache)
            }
        })
    }

    /// Waits for locks that delay a query to a local store, and reports the delay.
    fn lock_wait(&self) -> LockWait {
        let events = self.options.events.clone();
        LockWait::new(self.cancel.flag(), move |what| events.waiting_for(what))
    }
}

/// Opens a target. Creates it if it does not exist. `store_dir` is the store directory of a new
/// binary cache.
///
/// Errors: a cache behind HTTP cannot be written to; otherwise those of the store or the disk.
pub fn open_target(
    uri: &StoreUri,
    store_dir: Option<&StoreDir>,
    options: &WriteOptions,
) -> Result<Arc<dyn Target>, Error> {
    Ok(match uri {
        StoreUri::Local(store) => Arc::new(LocalTarget::open(store.layout.clone(), options)?),
        StoreUri::File(file) => {
            let dir = store_dir.cloned().unwrap_or_default();
            Arc::new(BinaryCacheWriter::open(file.clone(), dir)?)
        }
        StoreUri::Http(http) => return Err(read_only(http)),
    })
}

/// Opens a target for a dry run: creates and changes nothing.
pub fn open_read_only_target(
    uri: &StoreUri,
    store_dir: Option<&StoreDir>,
) -> Result<Arc<dyn Target>, Error> {
    Ok(match uri {
        StoreUri::Local(store) => Arc::new(ReadOnlyStore::open(store.layout.clone())?),
        StoreUri::File(file) => Arc::new(ReadOnlyCache::open(file, store_dir)?),
        StoreUri::Http(http) => return Err(read_only(http)),
    })
}

/// An HTTP cache cannot be a target.
fn read_only(cache: &HttpCacheUri) -> Error {
    Error::InvalidStoreUri {
        text: redact_credentials(&cache.url),
        reason: "floe does not upload over HTTP yet; copy to file://DIR".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn space_is_measured_in_directory_of_contents() {
        let location = StoreUri::parse("/mnt/root", None, None).unwrap();
        let target = open_read_only_target(&location, None).unwrap();
        let space = target.estimate_space(&[]).unwrap().unwrap();
        assert_eq!(space.directory, Path::new("/mnt/root/nix/store"));
        let location = StoreUri::parse("file:///mnt/cache", None, None).unwrap();
        let target = open_read_only_target(&location, None).unwrap();
        let space = target.estimate_space(&[]).unwrap().unwrap();
        assert_eq!(space.directory, Path::new("/mnt/cache/nar"));
    }
}
