//! The interfaces of the place where a binary cache keeps its objects.
//!
//! The objects are `nix-cache-info`, narinfos (`HASHPART.narinfo`), NARs (below `nar/`) and
//! listings (`HASHPART.ls`). A storage knows only their names. `BinaryCache` and
//! `BinaryCacheWriter` know their contents.
//!
//! No operation has a default, so that a wrapper that forgets one does not compile. A storage
//! behind a network ends every operation itself, after its attempts, each with a timeout. The
//! cancellation of a copy also ends the caller's wait for a reply.

mod replies;

use std::borrow::Cow;
use std::fmt::Debug;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use floe_format::lease::{GC_FOLDER, LEASES_FOLDER};
use floe_format::pin::{PIN_GENERATIONS_FOLDER, PINS_FOLDER};
use floe_transfer::{
    Body, CachePolicy, Cancel, Error, HttpServer, NamedObjects, NarRequest, RetryPolicy,
};

pub(crate) use replies::Replies;

/// Reads the objects of one binary cache: from a directory, a server, or through a wrapper around
/// another storage.
pub trait ReadStorage: Debug + Send + Sync {
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

    /// Opens a part of an object by its URL, as [`open`](ReadStorage::open) does. The body may have
    /// more bytes after the part.
    fn open_part(&self, url: &str, part: Range<u64>) -> Result<Body, Error>;

    /// Opens a large NAR before a worker is free to read it. Returns `None` if that would take a
    /// connection that another request may need first.
    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>>;

    /// Tells the storage how many queries the cache wants at once, before the first narinfo.
    fn set_query_limit(&self, limit: QueryLimit);

    /// Returns the error after which the storage answers no request any more.
    fn disabled_by(&self) -> Option<Arc<Error>>;

    /// Removes a remembered object that turned out to be wrong.
    fn forget(&self, name: &str);

    /// Returns when a failed transfer is repeated, if the storage has a policy.
    fn retry_policy(&self) -> Option<RetryPolicy>;

    /// Returns the interface that lists objects, if the storage has it.
    fn as_list(&self) -> Option<&dyn ListStorage>;

    /// Returns what the first response of an HTTP server has shown of it.
    fn http_server(&self) -> Option<HttpServer> {
        None
    }

    /// Ends all transfers. The storage cannot be used afterwards.
    fn abort(&self);
}

/// Lists the objects of a binary cache.
pub trait ListStorage: Debug + Send + Sync {
    /// Returns some of the objects of a folder beside `nix-cache-info`, in the order of their
    /// names, and waits for them. `next` is that of the page before.
    fn list_page(
        &self,
        folder: Folder,
        next: Option<&str>,
        cancel: &Cancel,
    ) -> Result<ListPage, Error>;

    /// Adds the lengths and the times of objects if a list does not have them.
    fn examine(&self, _objects: &mut [ListedObject]) -> Result<(), Error> {
        Ok(())
    }
}

/// A folder of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The cache itself, without its folders. It has the narinfos.
    Top,
    /// `nar/`
    Nars,
    /// `pins/`
    Pins,
    /// `pin-generations/`
    PinGenerations,
    /// `leases/`
    Leases,
    /// `gc/`
    Gc,
    /// `log/`
    Logs,
    /// `realisations/`
    Realisations,
    /// `debuginfo/`
    DebugInfo,
}

impl Folder {
    /// Returns the beginning of the names of its objects.
    pub fn prefix(self) -> &'static str {
        match self {
            Folder::Top => "",
            Folder::Nars => "nar/",
            Folder::Pins => PINS_FOLDER,
            Folder::PinGenerations => PIN_GENERATIONS_FOLDER,
            Folder::Leases => LEASES_FOLDER,
            Folder::Gc => GC_FOLDER,
            Folder::Logs => "log/",
            Folder::Realisations => "realisations/",
            Folder::DebugInfo => "debuginfo/",
        }
    }

    /// Returns the folder with a prefix if its objects are small and not many.
    pub(crate) fn of_small_objects(prefix: &str) -> Option<Folder> {
        let folders = [
            Folder::Pins,
            Folder::PinGenerations,
            Folder::Leases,
            Folder::Gc,
        ];
        folders.into_iter().find(|folder| folder.prefix() == prefix)
    }
}

/// A part of a list of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects.
    pub objects: Vec<ListedObject>,
    /// The text by which the storage finds the next page; `None` after the last one.
    pub next: Option<String>,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedObject {
    /// The name in the cache.
    pub name: String,
    /// The length in bytes, if the list tells it.
    pub len: Option<u64>,
    /// When the object was written, if the list tells it.
    pub modified: Option<SystemTime>,
}

/// Gets small objects, many at once and in any order. Calls `receive` with the name and the
/// contents of each object that exists.
///
/// Errors: the first one of the storage or of `receive`; [`Error::Cancelled`].
pub(crate) fn get_all(
    storage: &dyn ReadStorage,
    names: Vec<String>,
    cancel: &Cancel,
    mut receive: impl FnMut(String, Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut replies = Replies::new(cancel);
    let mut unsent = names.into_iter();
    loop {
        while replies.pending() < REQUESTS_MAX
            && let Some(name) = unsent.next()
        {
            let requested = name.clone();
            let reply = replies.callback(move |found: GetResult| (name, found));
            storage.get(&requested, CachePolicy::Bypass, reply);
        }
        let Some((name, found)) = replies.next()? else {
            return Ok(());
        };
        if let Some(contents) = found?.into_contents() {
            receive(name, contents)?;
        }
    }
}

/// Returns the names of all objects of a folder, without the name of the folder.
pub(crate) fn list_names(
    list: &dyn ListStorage,
    folder: Folder,
    cancel: &Cancel,
) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    let mut next = None;
    for _ in 0..PAGES_MAX {
        let page = list.list_page(folder, next.as_deref(), cancel)?;
        for object in page.objects {
            let name = object.name.strip_prefix(folder.prefix());
            names.extend(name.map(str::to_owned));
        }
        if names.len() > LISTED_MAX {
            let reason = format!("the cache has more than {LISTED_MAX} of these objects");
            return Err(Error::fetch(folder.prefix(), reason, false));
        }
        if page.next.is_none() || page.next == next {
            return Ok(names);
        }
        next = page.next;
    }
    let reason = format!("the cache lists these objects in more than {PAGES_MAX} pages");
    Err(Error::fetch(folder.prefix(), reason, false))
}

/// How many small objects a folder such as `pins/` may have.
const LISTED_MAX: usize = 100_000;

/// How many pages a list of them may have: those of 10 objects.
const PAGES_MAX: usize = 10_000;

/// Writes the objects of one binary cache.
pub trait WriteStorage: ReadStorage {
    /// Queries the length of an object. Calls `reply` exactly once, perhaps before it returns.
    ///
    /// A storage behind a network must not block here.
    fn query_len(&self, name: &str, reply: LenCallback);

    /// Prepares the storage for its first object, for example by creating directories.
    fn create(&self) -> Result<(), Error>;

    /// Writes an object whole or not at all. Calls `reply` exactly once, perhaps before it returns.
    ///
    /// A storage behind a network must not block here.
    fn put(&self, name: &str, contents: Vec<u8>, durability: Durability, reply: WriteCallback);

    /// Begins an object that gets its name at its end. May block until there is memory for it.
    fn begin_object(&self, plan: &ObjectPlan) -> Result<Box<dyn NewObject>, Error>;

    /// Waits until the names of all objects are on disk.
    fn sync(&self) -> Result<(), Error>;

    /// Deletes objects, usually at most [`WriteStorage::deletion_batch`] of them. An absent object
    /// is not an error. After an error, some may be left. Calls `reply` exactly once, perhaps
    /// before it returns.
    ///
    /// A storage behind a network must not block here.
    fn delete(&self, names: Vec<String>, reply: WriteCallback);

    /// Returns how many objects the storage deletes by one request.
    fn deletion_batch(&self) -> usize;

    /// Returns the interface to small objects beside the paths, such as pins.
    fn as_objects(&self) -> &dyn NamedObjects;

    /// Returns the directory whose file system receives the NARs, if they go to this machine.
    fn nar_directory(&self) -> Option<&Path>;
}

/// How many small objects are requested at once: more than a server accepts over one connection.
/// Their contents are in memory, usually a few KiB each, and at most `NARINFO_LEN_MAX`.
pub(crate) const REQUESTS_MAX: usize = 128;

/// The names of the records of staged paths begin with this text, and end with the hash part.
pub(crate) const RECORD_PREFIX: &str = ".floe-staged-";

/// The facts that are known of an object before its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPlan {
    /// The name for an object that a storage can neither keep nor rename. No other object has it.
    pub early_name: String,
    /// The expected number of bytes, or more.
    pub len: u64,
}

/// An object that is being written. A drop before the end leaves nothing.
pub trait NewObject: Write + Send {
    /// Returns the name of the file or the upload, for errors.
    fn place(&self) -> &Path;

    /// Gives the object its name, whole or not at all, also after a crash of the system. Calls
    /// `reply` exactly once, perhaps before it returns.
    ///
    /// Returns the name: `name`, or [`ObjectPlan::early_name`] if the storage had to choose before.
    fn finish(self: Box<Self>, name: &str, reply: WriteCallback) -> String;
}

/// Whether a new object survives a crash of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The object is whole or absent after a crash.
    Synced,
    /// A crash may damage the object.
    Unsynced,
}

/// Receives the result of one [`ReadStorage::get`].
pub type GetCallback = Box<dyn FnOnce(GetResult) + Send>;

/// The result of one [`ReadStorage::get`].
pub type GetResult = Result<Found, Error>;

/// Receives the result of one [`WriteStorage::query_len`].
pub type LenCallback = Box<dyn FnOnce(LenResult) + Send>;

/// Receives the end of one write.
pub type WriteCallback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The length of an object in bytes; `None` if it does not exist.
pub type LenResult = Result<Option<u64>, Error>;

/// The reply to a request for a small object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The object.
    Object(SmallObject),
    /// The storage does not have the object.
    Missing {
        /// The reason, such as `it is not there`.
        reason: Cow<'static, str>,
        /// When the storage replied, if the reply comes from the narinfo disk cache.
        remembered_at: Option<SystemTime>,
    },
}

impl Found {
    /// Makes the reply of a storage that does not have an object.
    pub fn missing(reason: impl Into<Cow<'static, str>>) -> Found {
        Found::Missing {
            reason: reason.into(),
            remembered_at: None,
        }
    }

    /// Returns the bytes of the object, if there is one.
    pub fn into_contents(self) -> Option<Vec<u8>> {
        match self {
            Found::Object(object) => Some(object.contents),
            Found::Missing { .. } => None,
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
    /// When the storage replied, if the reply comes from the narinfo disk cache.
    pub remembered_at: Option<SystemTime>,
}

/// How many queries a cache wants at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimit {
    /// Whether the cache accepts many queries at once (`WantMassQuery`).
    pub want_mass_query: bool,
    /// Whether the cache speaks HTTP/2.
    pub uses_http2: bool,
}

/// Gets an object and waits for it. Returns `None` if it does not exist.
pub(crate) fn get_and_wait<S: ReadStorage + ?Sized>(
    storage: &S,
    name: &str,
    cancel: &Cancel,
) -> Result<Option<Vec<u8>>, Error> {
    let mut replies = Replies::new(cancel);
    storage.get(name, CachePolicy::Bypass, replies.callback(|found| found));
    Ok(replies.only()??.into_contents())
}

/// Writes an object and waits for its end.
pub(crate) fn put_and_wait(
    storage: &dyn WriteStorage,
    name: &str,
    contents: Vec<u8>,
    durability: Durability,
) -> Result<(), Error> {
    // Nothing half-written may stay, so a cancellation does not end the wait.
    let mut replies = Replies::new(&Cancel::default());
    storage.put(name, contents, durability, replies.callback(|done| done));
    replies.only()?
}

/// Deletes an object and waits for the end. An absent object is not an error.
pub(crate) fn delete_and_wait(storage: &dyn WriteStorage, name: &str) -> Result<(), Error> {
    let mut replies = Replies::new(&Cancel::default());
    storage.delete(vec![name.to_owned()], replies.callback(|done| done));
    replies.only()?
}

/// Queries the length of an object and waits for it. Returns `None` if it does not exist.
pub(crate) fn len_and_wait(storage: &dyn WriteStorage, name: &str, cancel: &Cancel) -> LenResult {
    let mut replies = Replies::new(cancel);
    storage.query_len(name, replies.callback(|len| len));
    replies.only()?
}
