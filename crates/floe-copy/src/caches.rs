//! Binary caches by their URIs.

use std::fmt;
use std::sync::Arc;

use floe_cache::{
    BinaryCache, BinaryCacheWriter, CacheStorage, DiskCachedStorage, FileCacheUri, FileStorage,
    HttpCacheUri, HttpStorage,
};
use floe_transfer::{Error, Source, StoreUri, Target, redact_credentials};

use crate::store_config::{OpenTarget, SourceContext, StoreConfig, TargetContext, UriContext};

/// Parses `http://…` and `https://…`.
pub(crate) fn parse_http(
    uri: &StoreUri,
    _: &UriContext<'_>,
) -> Result<Arc<dyn StoreConfig>, String> {
    Ok(Arc::new(HttpCache(HttpCacheUri::parse(uri)?)))
}

/// Parses `file://…`.
pub(crate) fn parse_file(
    uri: &StoreUri,
    _: &UriContext<'_>,
) -> Result<Arc<dyn StoreConfig>, String> {
    Ok(file_cache(FileCacheUri::parse(uri)?))
}

/// Returns a binary cache in a directory.
pub fn file_cache(uri: FileCacheUri) -> Arc<dyn StoreConfig> {
    Arc::new(FileCache(uri))
}

/// A binary cache behind HTTP.
#[derive(Debug)]
struct HttpCache(HttpCacheUri);

impl fmt::Display for HttpCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_credentials(&self.0.url))
    }
}

impl StoreConfig for HttpCache {
    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let (network, disk_cache) = context.network.get()?;
        let storage = HttpStorage::new(&self.0, network)?;
        let storage: Arc<dyn CacheStorage> = match disk_cache {
            Some(disk_cache) => {
                let url = self.to_string();
                Arc::new(DiskCachedStorage::new(storage, disk_cache, &url))
            }
            None => Arc::new(storage),
        };
        Ok(open_cache(storage, &self.0.options, context))
    }

    fn open_target(&self, _: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        Err(Error::InvalidStoreUri {
            text: self.to_string(),
            reason: "floe does not upload over HTTP yet; copy to file://DIR".into(),
        })
    }

    fn uses_network(&self) -> bool {
        true
    }
}

/// A binary cache in a directory.
#[derive(Debug)]
struct FileCache(FileCacheUri);

impl fmt::Display for FileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.0.directory.display())
    }
}

impl StoreConfig for FileCache {
    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let storage = Arc::new(FileStorage::new(&self.0.directory));
        Ok(open_cache(storage, &self.0.options, context))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        let FileCacheUri {
            directory, write, ..
        } = &self.0;
        let store_dir = context.store_dir.clone().unwrap_or_default();
        let open = match context.dry_run {
            true => BinaryCacheWriter::open_read_only,
            false => BinaryCacheWriter::open,
        };
        let storage = Arc::new(FileStorage::new(directory));
        let target: Arc<dyn Target> = Arc::new(open(storage, write, store_dir)?);
        Ok(target.into())
    }
}

/// Opens a binary cache over a storage.
fn open_cache(
    storage: Arc<dyn CacheStorage>,
    options: &floe_cache::CacheOptions,
    context: &SourceContext<'_>,
) -> Arc<dyn Source> {
    let signal = context.opened.clone();
    let opened = move || {
        // The receiver is gone when the copy does not wait any more.
        let _: Result<(), _> = signal.send(());
    };
    Arc::new(BinaryCache::open(storage, options, opened))
}
