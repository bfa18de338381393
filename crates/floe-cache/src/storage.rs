//! The interface of the place where a binary cache keeps its objects.
//!
//! The objects are `nix-cache-info`, narinfos (`HASHPART.narinfo`), NARs (below `nar/`) and
//! listings (`HASHPART.ls`). A storage knows only their names. `BinaryCache` and
//! `BinaryCacheWriter` know their contents.

use std::borrow::Cow;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};

use floe_transfer::{Body, CachePolicy, Error, NarRequest, RetryPolicy};
use tempfile::TempPath;

/// A place for the objects of one binary cache: a directory, a server, or a wrapper around another
/// storage.
///
/// A storage that can only be read implements the first three methods.
pub trait CacheStorage: Debug + Send + Sync {
    /// Returns the URI of the cache without credentials.
    fn name(&self) -> String;

    /// Gets a small object. Calls `reply` exactly once, perhaps before it returns.
    ///
    /// A storage behind a network must not block here. `policy` matters only to a storage that
    /// remembers objects.
    fn get(&self, name: &str, policy: CachePolicy, reply: GetCallback);

    /// Opens a NAR by the URL in its narinfo: relative to the cache, or absolute. Must not block on
    /// a network.
    fn open(&self, url: &str, request: NarRequest) -> Result<Body, Error>;

    /// Opens a large NAR before a worker is free to read it. Returns `None` if that would take a
    /// connection that another request may need first.
    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        Some(self.open(url, request))
    }

    /// Tells the storage how many queries the cache wants at once, before the first narinfo.
    fn set_query_limit(&self, _limit: QueryLimit) {}

    /// Returns the error after which the storage answers no request any more.
    fn disabled_by(&self) -> Option<Arc<Error>> {
        None
    }

    /// Removes a remembered object that turned out to be wrong.
    fn forget(&self, _name: &str) {}

    /// Returns the length of an object in bytes; `None` if it does not exist.
    fn object_len(&self, _name: &str) -> Option<u64> {
        None
    }

    /// Whether an object exists.
    fn exists(&self, name: &str) -> bool {
        self.object_len(name).is_some()
    }

    /// Returns when a failed transfer is repeated, if the storage has a policy.
    fn retry_policy(&self) -> Option<RetryPolicy> {
        None
    }

    /// Returns the names of the objects beside `nix-cache-info`, or `None` if the storage cannot
    /// list them.
    fn list(&self) -> Result<Option<Vec<String>>, Error> {
        Ok(None)
    }

    /// Prepares the storage for its first object, for example by creating directories.
    fn create(&self) -> Result<(), Error> {
        Err(self.read_only())
    }

    /// Writes an object whole or not at all, also after a crash of the system.
    fn put_atomic(&self, _name: &str, _contents: &[u8]) -> Result<(), Error> {
        Err(self.read_only())
    }

    /// Writes an object that a crash of the system may damage.
    fn put_unsynced(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        self.put_atomic(name, contents)
    }

    /// Waits until the names of all objects are on disk.
    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Creates a file for an object whose name is not known yet. Dropping its path removes it.
    fn create_temporary(&self) -> Result<(File, TempPath), Error> {
        Err(self.read_only())
    }

    /// Makes the contents of a temporary file an object, whole or not at all, also after a crash of
    /// the system.
    fn put_temporary(&self, _name: &str, _file: TempPath) -> Result<(), Error> {
        Err(self.read_only())
    }

    /// Deletes an object. An absent object is no error.
    fn delete(&self, _name: &str) -> Result<(), Error> {
        Err(self.read_only())
    }

    /// Returns the directory whose file system receives the NARs, if they go to this machine.
    fn nar_directory(&self) -> Option<&Path> {
        None
    }

    /// Ends all transfers. The storage cannot be used afterwards.
    fn abort(&self) {}

    /// Returns the error for a write to a storage that can only be read.
    fn read_only(&self) -> Error {
        Error::InvalidStoreUri {
            text: self.name(),
            reason: "floe cannot write to a cache of this kind; copy to file://DIR".into(),
        }
    }
}

/// Returns the conversion of a system error about a file.
pub(crate) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Returns the conversion of a system error about a file that is read.
pub(crate) fn read_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::UnreadableFile {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Receives the result of one [`CacheStorage::get`].
pub type GetCallback = Box<dyn FnOnce(GetResult) + Send>;

/// The result of one [`CacheStorage::get`].
pub type GetResult = Result<Found, Error>;

/// The reply to a request for a small object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The object.
    Object(SmallObject),
    /// The storage does not have the object.
    Missing {
        /// The reason, such as `it is not there`.
        reason: Cow<'static, str>,
        /// Whether the reply comes from the narinfo disk cache.
        from_disk_cache: bool,
    },
}

impl Found {
    /// Makes the reply of a storage that does not have an object.
    pub fn missing(reason: impl Into<Cow<'static, str>>) -> Found {
        Found::Missing {
            reason: reason.into(),
            from_disk_cache: false,
        }
    }
}

/// A small object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallObject {
    /// The bytes. An object that is too large is cut off, but still so long that parsers refuse it.
    pub contents: Vec<u8>,
    /// Whether the storage replied over HTTP/2, which carries many queries on one connection.
    pub uses_http2: bool,
    /// Whether the reply comes from the narinfo disk cache.
    pub from_disk_cache: bool,
}

/// How many queries a cache wants at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimit {
    /// Whether the cache accepts many queries at once (`WantMassQuery`).
    pub want_mass_query: bool,
    /// Whether the cache speaks HTTP/2.
    pub uses_http2: bool,
}

/// Gets an object and waits for it. For storages that reply at once, and for targets.
pub(crate) fn get_and_wait(
    storage: &dyn CacheStorage,
    name: &str,
) -> Result<Option<Vec<u8>>, Error> {
    let (sender, receiver) = mpsc::channel();
    let reply = Box::new(move |found| {
        // The receiver waits until the reply has come.
        let _: Result<(), _> = sender.send(found);
    });
    storage.get(name, CachePolicy::Bypass, reply);
    let found = receiver.recv();
    match found.map_err(|_| Error::Internal("a storage does not reply"))?? {
        Found::Object(object) => Ok(Some(object.contents)),
        Found::Missing { .. } => Ok(None),
    }
}
