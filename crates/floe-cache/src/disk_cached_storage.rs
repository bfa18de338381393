//! A storage that remembers the small objects of another storage on disk.

use std::path::Path;
use std::sync::Arc;

use floe_transfer::{Body, Buffering, CachePolicy, Error};

use crate::binary_cache::{CACHE_INFO, NARINFO_SUFFIX};
use crate::narinfo_disk_cache::NarInfoDiskCache;
use crate::storage::{CacheStorage, Found, GetCallback, QueryLimit, SmallObject};

/// Wraps a storage with the narinfo disk cache.
#[derive(Debug)]
pub struct DiskCachedStorage<S> {
    inner: S,
    memory: Memory,
}

/// The entries of one binary cache in the disk cache.
#[derive(Clone, Debug)]
struct Memory {
    disk_cache: Arc<NarInfoDiskCache>,
    /// The URL of the cache without credentials: every user may read the disk cache.
    url: Arc<str>,
}

impl<S: CacheStorage> DiskCachedStorage<S> {
    /// Wraps the storage of the cache with a URL, which must not contain credentials.
    pub fn new(inner: S, disk_cache: Arc<NarInfoDiskCache>, url: &str) -> DiskCachedStorage<S> {
        let url = url.into();
        DiskCachedStorage {
            inner,
            memory: Memory { disk_cache, url },
        }
    }
}

impl Memory {
    /// Returns the entry of an object, if `policy` allows it.
    fn find(&self, name: &str, policy: CachePolicy) -> Option<Found> {
        let (uses_http2, contents) = match name.strip_suffix(NARINFO_SUFFIX) {
            _ if policy == CachePolicy::Bypass => return None,
            None => self.disk_cache.cache_info(&self.url)?,
            Some(part) => match self.disk_cache.narinfo(&self.url, part)? {
                Some(contents) => (false, contents),
                None if policy == CachePolicy::HitsOnly => return None,
                None => {
                    return Some(Found::Missing("it is not there".into()));
                }
            },
        };
        Some(Found::Object(SmallObject {
            contents,
            uses_http2,
            from_disk_cache: true,
        }))
    }

    fn insert(&self, name: &str, found: &Found) {
        match (name.strip_suffix(NARINFO_SUFFIX), found) {
            (Some(part), Found::Object(object)) => {
                let contents = Some(&*object.contents);
                self.disk_cache.insert_narinfo(&self.url, part, contents);
            }
            (Some(part), Found::Missing(_)) => {
                self.disk_cache.insert_narinfo(&self.url, part, None);
            }
            (None, Found::Object(object)) => {
                let contents = &object.contents;
                self.disk_cache
                    .insert_cache_info(&self.url, object.uses_http2, contents);
            }
            (None, Found::Missing(_)) => {}
        }
    }

    fn remove(&self, name: &str) {
        match name.strip_suffix(NARINFO_SUFFIX) {
            Some(part) => self.disk_cache.remove_narinfo(&self.url, part),
            None => self.disk_cache.remove_cache_info(&self.url),
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
        if let Some(found) = self.memory.find(name, policy) {
            return reply(Ok(found));
        }
        if policy == CachePolicy::Bypass && name != CACHE_INFO {
            // The entry must not outlive a reply that never comes.
            self.memory.remove(name);
        }
        let (memory, object) = (self.memory.clone(), name.to_owned());
        let reply = move |result| {
            if let Ok(found) = &result {
                memory.insert(&object, found);
            }
            reply(result);
        };
        self.inner.get(name, policy, Box::new(reply));
    }

    fn open(&self, url: &str, buffering: Buffering) -> Result<Body, Error> {
        self.inner.open(url, buffering)
    }

    fn prefetch(&self, url: &str) -> Option<Result<Body, Error>> {
        self.inner.prefetch(url)
    }

    fn set_query_limit(&self, limit: QueryLimit) {
        self.inner.set_query_limit(limit);
    }

    fn disabled_by(&self) -> Option<Arc<Error>> {
        self.inner.disabled_by()
    }

    fn forget(&self, name: &str) {
        self.memory.remove(name);
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

        fn open(&self, _: &str, _: Buffering) -> Result<Body, Error> {
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
        let part = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";
        let earlier_run = NarInfoDiskCache::open(&options).unwrap();
        earlier_run.insert_narinfo(&Disabled.name(), part, Some(b"StorePath: x"));
        drop(earlier_run);
        let disk_cache = Arc::new(NarInfoDiskCache::open(&options).unwrap());
        let storage = DiskCachedStorage::new(Disabled, disk_cache, &Disabled.name());
        let name = format!("{part}{NARINFO_SUFFIX}");
        assert!(storage.memory.find(&name, CachePolicy::Use).is_some());
        let (sender, results) = std::sync::mpsc::channel();
        let reply = Box::new(move |result| sender.send(result).unwrap());
        storage.get(&name, CachePolicy::Use, reply);
        let result = results.try_recv().unwrap();
        assert!(
            matches!(result, Err(Error::SourceDisabled(_))),
            "{result:?}"
        );
    }
}
