//! A storage that remembers the small objects of another storage on disk.

use std::ops::Range;
use std::sync::Arc;

use floe_transfer::{Body, CachePolicy, Error, HttpServer, NarRequest, RetryPolicy, Session};

use crate::binary_cache::CACHE_INFO;
use crate::narinfo_disk_cache::{NarInfoDiskCache, SessionDiskCache};
use crate::storage::{Found, GetCallback, ListStorage, QueryLimit, ReadStorage};

/// Wraps a storage with the narinfo disk cache.
#[derive(Debug)]
pub struct DiskCachedStorage<S> {
    inner: S,
    disk_cache: Arc<NarInfoDiskCache>,
    /// The URL of the cache without credentials: every user may read the disk cache.
    url: Arc<str>,
}

impl<S: ReadStorage + 'static> DiskCachedStorage<S> {
    /// Wraps the storage of a cache if the session has a disk cache. The URL must not contain
    /// credentials.
    pub(crate) fn wrap(
        inner: S,
        session: &Session,
        url: &str,
    ) -> Result<Arc<dyn ReadStorage>, Error> {
        Ok(match session.service::<SessionDiskCache>()?.0.clone() {
            Some(disk_cache) => Arc::new(DiskCachedStorage::new(inner, disk_cache, url)),
            None => Arc::new(inner),
        })
    }
}

impl<S: ReadStorage> DiskCachedStorage<S> {
    /// Wraps the storage of the cache with a URL, which must not contain credentials.
    pub fn new(inner: S, disk_cache: Arc<NarInfoDiskCache>, url: &str) -> DiskCachedStorage<S> {
        DiskCachedStorage {
            inner,
            disk_cache,
            url: url.into(),
        }
    }
}

impl<S: ReadStorage> ReadStorage for DiskCachedStorage<S> {
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

    fn open_part(&self, url: &str, part: Range<u64>) -> Result<Body, Error> {
        self.inner.open_part(url, part)
    }

    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        self.inner.prefetch(url, request)
    }

    fn http_server(&self) -> Option<HttpServer> {
        self.inner.http_server()
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

    fn as_list(&self) -> Option<&dyn ListStorage> {
        self.inner.as_list()
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
    use std::path::Path;

    use floe_transfer::Cancel;
    use parking_lot::Mutex;

    use super::*;
    use crate::network::NarInfoDiskCacheOptions;
    use crate::storage::{Folder, ListPage};

    /// A storage that records its operations.
    #[derive(Debug, Default)]
    struct Recorder {
        operations: Mutex<Vec<&'static str>>,
        is_disabled: bool,
    }

    impl Recorder {
        fn record(&self, operation: &'static str) {
            self.operations.lock().push(operation);
        }
    }

    impl ListStorage for Recorder {
        fn list_page(&self, _: Folder, _: Option<&str>, _: &Cancel) -> Result<ListPage, Error> {
            self.record("list_page");
            Ok(ListPage::default())
        }
    }

    impl ReadStorage for Recorder {
        fn name(&self) -> String {
            self.record("name");
            URL.into()
        }

        fn get(&self, _: &str, _: CachePolicy, reply: GetCallback) {
            self.record("get");
            reply(Ok(Found::missing("it is not there")));
        }

        fn open(&self, _: &str, _: NarRequest) -> Result<Body, Error> {
            self.record("open");
            Err(Error::NoSources)
        }

        fn open_part(&self, _: &str, _: Range<u64>) -> Result<Body, Error> {
            self.record("open_part");
            Err(Error::NoSources)
        }

        fn prefetch(&self, _: &str, _: NarRequest) -> Option<Result<Body, Error>> {
            self.record("prefetch");
            None
        }

        fn set_query_limit(&self, _: QueryLimit) {
            self.record("set_query_limit");
        }

        fn disabled_by(&self) -> Option<Arc<Error>> {
            self.record("disabled_by");
            self.is_disabled.then(|| Arc::new(Error::NoSources))
        }

        fn forget(&self, _: &str) {
            self.record("forget");
        }

        fn retry_policy(&self) -> Option<RetryPolicy> {
            self.record("retry_policy");
            None
        }

        fn as_list(&self) -> Option<&dyn ListStorage> {
            Some(self)
        }

        fn abort(&self) {
            self.record("abort");
        }
    }

    const URL: &str = "https://cache.example.org";

    const NAME: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c.narinfo";

    /// Wraps a storage with the disk cache in a file.
    fn wrap(inner: Recorder, file: &Path) -> DiskCachedStorage<Recorder> {
        let options = NarInfoDiskCacheOptions::new(file.to_path_buf());
        let disk_cache = Arc::new(NarInfoDiskCache::open(&options).unwrap());
        DiskCachedStorage::new(inner, disk_cache, URL)
    }

    #[test]
    fn every_operation_reaches_the_wrapped_storage() {
        let scratch = tempfile::tempdir().unwrap();
        let storage = wrap(Recorder::default(), &scratch.path().join("narinfos.sqlite"));
        let limit = QueryLimit {
            want_mass_query: true,
            uses_http2: false,
        };
        assert_eq!(storage.name(), URL);
        storage.get(NAME, CachePolicy::Use, Box::new(|_| {}));
        storage.open("nar", NarRequest::streamed()).unwrap_err();
        storage.open_part("nar", 1..2).unwrap_err();
        assert!(storage.prefetch("nar", NarRequest::streamed()).is_none());
        storage.set_query_limit(limit);
        storage.forget(NAME);
        storage.retry_policy();
        let list = storage.as_list().unwrap();
        list.list_page(Folder::Top, None, &Cancel::default())
            .unwrap();
        storage.abort();
        let expected = [
            "name",
            "disabled_by",
            "get",
            "open",
            "open_part",
            "prefetch",
            "set_query_limit",
            "forget",
            "retry_policy",
            "list_page",
            "abort",
        ];
        assert_eq!(*storage.inner.operations.lock(), expected);
    }

    #[test]
    fn disabled_storage_hides_its_remembered_objects() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("narinfos.sqlite");
        let earlier_run = wrap(Recorder::default(), &file);
        earlier_run.get(NAME, CachePolicy::Use, Box::new(|_| {}));
        drop(earlier_run);
        let disabled = Recorder {
            is_disabled: true,
            ..Recorder::default()
        };
        let storage = wrap(disabled, &file);
        assert!(storage.disk_cache.find(&storage.url, NAME).is_some());
        let (sender, results) = std::sync::mpsc::channel();
        let reply = Box::new(move |result| sender.send(result).unwrap());
        storage.get(NAME, CachePolicy::Use, reply);
        let result = results.try_recv().unwrap();
        assert!(
            matches!(result, Err(Error::SourceDisabled(_))),
            "{result:?}"
        );
    }
}
