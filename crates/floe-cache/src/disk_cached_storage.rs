//! A storage that remembers the small objects of another storage on disk.

use std::path::Path;
use std::sync::Arc;

use floe_transfer::{Body, CachePolicy, Error, NarRequest, RetryPolicy};

use crate::binary_cache::CACHE_INFO;
use crate::narinfo_disk_cache::NarInfoDiskCache;
use crate::storage::{CacheStorage, Found, GetCallback, QueryLimit};

/// Wraps a storage with the narinfo disk cache.
#[derive(Debug)]
pub struct DiskCachedStorage<S> {
    inner: S,
    disk_cache: Arc<NarInfoDiskCache>,
    /// The URL of the cache without credentials: every user may read the disk cache.
    url: Arc<str>,
}

impl<S: CacheStorage> DiskCachedStorage<S> {
    /// Wraps the storage of the cache with a URL, which must not contain credentials.
    pub fn new(inner: S, disk_cache: Arc<NarInfoDiskCache>, url: &str) -> DiskCachedStorage<S> {
        DiskCachedStorage {
            inner,
            disk_cache,
            url: url.into(),
        }
    }
}

impl<S: CacheStorage> CacheStorage for DiskCachedStorage<S> {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn get(&self, name: &str, policy: CachePolicy, reply: GetCallback) {
        // A narinfo from the disk cache would assign its NAR to a cache that does not answer.
        if let Some(error) = self.inner.disabled_by() {
            return reply(Err(Error::SourceDisabled(error)));
        }
        if policy != CachePolicy::Bypass {
            match self.disk_cache.find(&self.url, name) {
                Some(Found::Missing { .. }) if policy == CachePolicy::HitsOnly => {}
                Some(found) => return reply(Ok(found)),
                None => {}
            }
        } else if name != CACHE_INFO {
            // The entry must not outlive a reply that never comes.
            self.disk_cache.remove(&self.url, name);
        }
        let (disk_cache, url, object) =
            (self.disk_cache.clone(), self.url.clone(), name.to_owned());
        let reply = move |result| {
            if let Ok(found) = &result
                && !is_oversized(found)
            {
                disk_cache.insert(&url, &object, found);
            }
            reply(result);
        };
        self.inner.get(name, policy, Box::new(reply));
    }

    fn open(&self, url: &str, request: NarRequest) -> Result<Body, Error> {
        self.inner.open(url, request)
    }

    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        self.inner.prefetch(url, request)
    }

    fn set_query_limit(&self, limit: QueryLimit) {
        self.inner.set_query_limit(limit);
    }

    fn retry_policy(&self) -> Option<RetryPolicy> {
        self.inner.retry_policy()
    }

    fn disabled_by(&self) -> Option<Arc<Error>> {
        self.inner.disabled_by()
    }

    fn forget(&self, name: &str) {
        self.disk_cache.remove(&self.url, name);
        self.inner.forget(name);
    }

    fn exists(&self, name: &str) -> bool {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Option<Vec<String>>, Error> {
        self.inner.list()
    }

    fn nar_directory(&self) -> Option<&Path> {
        self.inner.nar_directory()
    }

    fn abort(&self) {
        self.inner.abort();
    }
}

/// Whether an object is too large to be worth remembering. A cache must not fill the disk.
fn is_oversized(found: &Found) -> bool {
    matches!(found, Found::Object(object) if object.contents.len() > REMEMBERED_LEN_MAX)
}

/// The largest object that the disk cache remembers, in bytes. Narinfos have a few KiB.
const REMEMBERED_LEN_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::NarInfoDiskCacheOptions;

    /// A storage that another request has disabled.
    #[derive(Debug)]
    struct Disabled;

    impl CacheStorage for Disabled {
        fn name(&self) -> String {
            "https://cache.example.org".into()
        }

        fn get(&self, _: &str, _: CachePolicy, reply: GetCallback) {
            reply(Err(Error::Cancelled));
        }

        fn open(&self, _: &str, _: NarRequest) -> Result<Body, Error> {
            Err(Error::Cancelled)
        }

        fn disabled_by(&self) -> Option<Arc<Error>> {
            Some(Arc::new(Error::Cancelled))
        }
    }

    #[test]
    fn disabled_storage_hides_its_remembered_objects() {
        let scratch = tempfile::tempdir().unwrap();
        let options = NarInfoDiskCacheOptions::new(scratch.path().join("narinfos.sqlite"));
        let name = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c.narinfo";
        let earlier_run = NarInfoDiskCache::open(&options).unwrap();
        let missing = Found::missing("it is not there");
        earlier_run.insert(&Disabled.name(), name, &missing);
        drop(earlier_run);
        let disk_cache = Arc::new(NarInfoDiskCache::open(&options).unwrap());
        let storage = DiskCachedStorage::new(Disabled, disk_cache, &Disabled.name());
        assert!(storage.disk_cache.find(&storage.url, name).is_some());
        let (sender, results) = std::sync::mpsc::channel();
        let reply = Box::new(move |result| sender.send(result).unwrap());
        storage.get(name, CachePolicy::Use, reply);
        let result = results.try_recv().unwrap();
        assert!(
            matches!(result, Err(Error::SourceDisabled(_))),
            "{result:?}"
        );
    }
}
