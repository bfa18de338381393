//! Binary caches by their URIs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_cache::{
    BinaryCache, BinaryCacheWriter, CacheOptions, CacheStorage, DiskCachedStorage, FileCacheUri,
    FileStorage, HttpCacheUri, HttpStorage,
};
use floe_transfer::{Error, IgnoredParameter, Source};

use crate::store_config::{OpenTarget, SourceContext, StoreConfig, TargetContext};

impl StoreConfig for HttpCacheUri {
    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let network = context
            .network
            .ok_or_else(|| Error::fetch(&self.to_string(), "the network has not started", false))?;
        let storage = HttpStorage::new(self, network.clone())?;
        let storage: Arc<dyn CacheStorage> = match network.disk_cache() {
            Some(disk_cache) => {
                let url = self.to_string();
                Arc::new(DiskCachedStorage::new(storage, disk_cache, &url))
            }
            None => Arc::new(storage),
        };
        Ok(open_cache(storage, &self.options, context))
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

    fn is_trusted(&self) -> bool {
        self.options.trusted
    }

    fn ignored_parameters(&self) -> &[IgnoredParameter] {
        &self.ignored
    }
}

impl StoreConfig for FileCacheUri {
    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let storage = Arc::new(FileStorage::new(&self.directory));
        Ok(open_cache(storage, &self.options, context))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        let store_dir = context.store_dir.clone().unwrap_or_default();
        let open = match context.dry_run {
            true => BinaryCacheWriter::open_read_only,
            false => BinaryCacheWriter::open,
        };
        if self.directory == Path::new("/") && !self.exists() {
            return Err(Error::InvalidStoreUri {
                text: self.to_string(),
                reason: "floe makes no cache in the root directory; use file:///DIR".into(),
            });
        }
        let storage = Arc::new(FileStorage::new(&self.directory));
        Ok(OpenTarget {
            target: Arc::new(open(storage, &self.write, store_dir)?),
            local_store: None,
        })
    }

    fn is_new(&self) -> bool {
        !self.exists()
    }

    fn secret_key_files(&self) -> &[PathBuf] {
        &self.write.secret_keys
    }

    fn is_trusted(&self) -> bool {
        self.options.trusted
    }

    fn ignored_parameters(&self) -> &[IgnoredParameter] {
        &self.ignored
    }
}

/// Opens a binary cache over a storage.
fn open_cache(
    storage: Arc<dyn CacheStorage>,
    options: &CacheOptions,
    context: &SourceContext<'_>,
) -> Arc<dyn Source> {
    let signal = context.opened.clone();
    let opened = move || {
        // The receiver is gone when the copy does not wait any more.
        let _: Result<(), _> = signal.send(());
    };
    let mut options = options.clone();
    if !context.are_substituters {
        // As in Nix, the `WantMassQuery` of a cache counts for substituters only.
        options.want_mass_query.get_or_insert(true);
    }
    Arc::new(BinaryCache::open(storage, &options, opened))
}
