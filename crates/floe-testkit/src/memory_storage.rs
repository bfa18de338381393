//! A storage in memory that can hold replies back and fail, as a storage behind a network may.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use floe_cache::{
    Durability, Folder, Found, GetCallback, LenCallback, ListPage, ListStorage, ListedObject,
    NewObject, ObjectPlan, QueryLimit, ReadStorage, SmallObject, WriteCallback, WriteStorage,
};
use floe_format::base16;
use floe_hash::sha256;
use floe_transfer::{
    Body, CachePolicy, Cancel, ChunkSource, Error, Expected, NamedObject, NamedObjects, NarRequest,
    NextChunk, RetryPolicy, Written,
};
use parking_lot::Mutex;

/// A storage in memory. Its clones are the same storage.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage(Arc<Mutex<State>>);

/// Sends a reply that was held back.
type HeldReply = Box<dyn FnOnce(&MemoryStorage) + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// How far the clock of the storage is ahead of that of this machine.
    clock_offset: Duration,
    is_held: bool,
    held: Vec<HeldReply>,
    /// The error of every query of a length.
    len_error: Option<&'static str>,
}

#[derive(Clone)]
struct Object {
    contents: Vec<u8>,
    modified: SystemTime,
}

impl State {
    fn now(&self) -> SystemTime {
        SystemTime::now() + self.clock_offset
    }

    fn insert(&mut self, name: &str, contents: &[u8]) {
        let object = Object {
            contents: contents.to_owned(),
            modified: self.now(),
        };
        self.objects.insert(name.to_owned(), object);
    }

    fn has_expected(&self, name: &str, expected: &Expected) -> bool {
        let found = self.objects.get(name);
        match expected {
            Expected::Any => true,
            Expected::Absent => found.is_none(),
            Expected::Version(version) => {
                found.is_some_and(|found| version_of(&found.contents) == *version)
            }
        }
    }
}

/// Returns the version of an object.
fn version_of(contents: &[u8]) -> String {
    base16::encode(&sha256(contents))
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} objects", self.objects.len())
    }
}

impl MemoryStorage {
    /// Adds an object.
    pub fn insert(&self, name: &str, contents: &[u8]) {
        self.0.lock().insert(name, contents);
    }

    /// Sets the clock of the storage forward.
    pub fn advance_clock(&self, by: Duration) {
        self.0.lock().clock_offset += by;
    }

    /// Returns the names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// Holds all replies back until [`MemoryStorage::release`].
    pub fn hold(&self) {
        self.0.lock().is_held = true;
    }

    /// Returns the number of replies that are held back.
    pub fn held(&self) -> usize {
        self.0.lock().held.len()
    }

    /// Sends the replies that are held back. Further ones are still held back.
    pub fn release(&self) {
        let held = std::mem::take(&mut self.0.lock().held);
        held.into_iter().for_each(|reply| reply(self));
    }

    /// Makes every query of a length fail for this reason.
    pub fn fail_lengths(&self, reason: &'static str) {
        self.0.lock().len_error = Some(reason);
    }

    fn object(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.0.lock();
        state.objects.get(name).map(|found| found.contents.clone())
    }

    /// Replies now or later.
    fn reply(&self, reply: impl FnOnce(&MemoryStorage) + Send + 'static) {
        let mut state = self.0.lock();
        if state.is_held {
            state.held.push(Box::new(reply));
            return;
        }
        drop(state);
        reply(self);
    }
}

impl ReadStorage for MemoryStorage {
    fn name(&self) -> String {
        "memory".into()
    }

    fn get(&self, name: &str, _: CachePolicy, reply: GetCallback) {
        let name = name.to_owned();
        self.reply(move |storage| {
            reply(Ok(match storage.object(&name) {
                Some(contents) => Found::Object(SmallObject {
                    contents,
                    ..SmallObject::default()
                }),
                None => Found::missing("it is not in memory"),
            }));
        });
    }

    fn open(&self, url: &str, _: NarRequest) -> Result<Body, Error> {
        let contents = self.object(url);
        let contents = contents.ok_or_else(|| Error::fetch(url, "it is not in memory", false))?;
        Ok(Body::Chunks(Box::new(WholeBody(Some(contents.into())))))
    }

    fn open_part(&self, url: &str, part: Range<u64>) -> Result<Body, Error> {
        let contents = self.object(url);
        let mut contents =
            contents.ok_or_else(|| Error::fetch(url, "it is not in memory", false))?;
        let start = usize::try_from(part.start).unwrap_or(usize::MAX);
        contents.drain(..start.min(contents.len()));
        Ok(Body::Chunks(Box::new(WholeBody(Some(contents.into())))))
    }

    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        Some(self.open(url, request))
    }

    fn set_query_limit(&self, _: QueryLimit) {}

    fn disabled_by(&self) -> Option<Arc<Error>> {
        None
    }

    fn forget(&self, _: &str) {}

    fn retry_policy(&self) -> Option<RetryPolicy> {
        None
    }

    fn as_list(&self) -> Option<&dyn ListStorage> {
        Some(self)
    }

    fn abort(&self) {}
}

impl ListStorage for MemoryStorage {
    fn list_page(&self, folder: Folder, _: Option<&str>, _: &Cancel) -> Result<ListPage, Error> {
        let storage = self.0.lock();
        let objects = storage.objects.iter().filter(|(name, _)| {
            let rest = name.strip_prefix(folder.prefix());
            rest.is_some_and(|rest| !rest.contains('/'))
        });
        let mut objects: Vec<_> = objects
            .map(|(name, object)| ListedObject {
                modified: Some(object.modified),
                name: name.clone(),
                len: Some(object.contents.len() as u64),
            })
            .collect();
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(ListPage {
            objects,
            next: None,
        })
    }
}

impl WriteStorage for MemoryStorage {
    fn query_len(&self, name: &str, reply: LenCallback) {
        let name = name.to_owned();
        self.reply(move |storage| {
            let error = storage.0.lock().len_error;
            reply(match error {
                Some(reason) => Err(Error::fetch(&name, reason, false)),
                None => Ok(storage.object(&name).map(|object| object.len() as u64)),
            });
        });
    }

    fn create(&self) -> Result<(), Error> {
        Ok(())
    }

    fn put(&self, name: &str, contents: Vec<u8>, _: Durability, reply: WriteCallback) {
        let name = name.to_owned();
        self.reply(move |storage| {
            storage.insert(&name, &contents);
            reply(Ok(()));
        });
    }

    fn begin_object(&self, _: &ObjectPlan) -> Result<Box<dyn NewObject>, Error> {
        Ok(Box::new(NewMemoryObject {
            storage: self.clone(),
            contents: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn delete(&self, names: Vec<String>, reply: WriteCallback) {
        self.reply(move |storage| {
            for name in names {
                storage.0.lock().objects.remove(&name);
            }
            reply(Ok(()));
        });
    }

    fn deletion_batch(&self) -> usize {
        2
    }

    fn as_objects(&self) -> &dyn NamedObjects {
        self
    }

    fn nar_directory(&self) -> Option<&Path> {
        None
    }
}

impl NamedObjects for MemoryStorage {
    fn get(&self, names: &[String], cancel: &Cancel) -> Vec<Result<Option<NamedObject>, Error>> {
        let objects = names
            .iter()
            .map(|name| self.get_large(name, usize::MAX, cancel));
        objects.collect()
    }

    fn get_large(&self, name: &str, _: usize, _: &Cancel) -> Result<Option<NamedObject>, Error> {
        let state = self.0.lock();
        let found = state.objects.get(name);
        Ok(found.map(|object| NamedObject {
            contents: object.contents.clone(),
            version: Some(version_of(&object.contents)),
            modified: Some(object.modified),
            replied_at: Some(state.now()),
        }))
    }

    fn put(&self, name: &str, contents: &[u8], expected: &Expected) -> Result<Written, Error> {
        let mut state = self.0.lock();
        if !state.has_expected(name, expected) {
            return Ok(Written::Conflict);
        }
        state.insert(name, contents);
        Ok(Written::Yes)
    }

    fn put_volatile(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        self.insert(name, contents);
        Ok(())
    }

    fn delete(&self, name: &str, expected: &Expected) -> Result<Written, Error> {
        let mut state = self.0.lock();
        if state.objects.contains_key(name) && !state.has_expected(name, expected) {
            return Ok(Written::Conflict);
        }
        state.objects.remove(name);
        Ok(Written::Yes)
    }

    fn can_list(&self) -> bool {
        true
    }

    fn list(&self, folder: &str, _: &Cancel) -> Result<Option<Vec<String>>, Error> {
        let state = self.0.lock();
        let names = state.objects.keys();
        let names = names.filter_map(|name| name.strip_prefix(folder).map(str::to_owned));
        Ok(Some(names.collect()))
    }
}

struct NewMemoryObject {
    storage: MemoryStorage,
    contents: Vec<u8>,
}

impl Write for NewMemoryObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.contents.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewObject for NewMemoryObject {
    fn place(&self) -> &Path {
        Path::new("memory")
    }

    fn finish(self: Box<Self>, name: &str, reply: WriteCallback) -> String {
        let (storage, contents) = (self.storage.clone(), self.contents);
        WriteStorage::put(&storage, name, contents, Durability::Synced, reply);
        name.to_owned()
    }
}

/// A body that arrives as one chunk.
#[derive(Debug)]
struct WholeBody(Option<Bytes>);

impl ChunkSource for WholeBody {
    fn try_next(&mut self) -> Option<NextChunk> {
        Some(Ok(self.0.take()))
    }

    fn wait_for_next(&mut self) -> NextChunk {
        Ok(self.0.take())
    }
}
