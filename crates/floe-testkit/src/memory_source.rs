//! A source that holds narinfos and NARs in memory and injects faults.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::mpsc::{self, Receiver, SyncSender};

use bytes::Bytes;
use floe_format::{Compression, Hash, HashPart, NarInfo, PathInfo, SecretKey, StoreDir, StorePath};
use floe_transfer::{
    Body, CachePolicy, ChunkSource, Error, NarInfoCallback, NarInfoResult, NarRequest, NarStream,
    NextChunk, PathSpec, Source,
};
use parking_lot::Mutex;

use crate::{nars, synthetic_cache};

/// The behaviour of a source instead of sending the NAR of a path.
#[derive(Clone, Copy, Debug)]
pub enum SourceFault {
    /// Fails this many times with an error that a retry may cure, then sends the NAR.
    Transient(u32),
    /// Fails each time with an error that no retry cures.
    Permanent,
    /// Sends a NAR of the right size with another last byte.
    WrongBytes,
    /// Sends nothing until [`MemorySource::release`].
    Held,
    /// Does not answer queries for the path until [`MemorySource::release`].
    HeldQuery,
}

/// A source of single-file paths in memory. It counts queries and opened NARs.
pub struct MemorySource {
    name: String,
    dir: StoreDir,
    key: Option<SecretKey>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    paths: BTreeMap<HashPart, (NarInfo, Bytes)>,
    faults: HashMap<StorePath, SourceFault>,
    held_bodies: Vec<(SyncSender<Option<Bytes>>, Bytes)>,
    held_queries: Vec<(HashPart, NarInfoCallback)>,
    queries: Vec<HashPart>,
    opened: Vec<StorePath>,
}

impl MemorySource {
    /// Creates an empty source. With a key it signs the paths that it gets.
    pub fn new(name: &str, key: Option<SecretKey>) -> MemorySource {
        MemorySource {
            name: name.to_owned(),
            dir: StoreDir::default(),
            key,
            state: Mutex::default(),
        }
    }

    /// Adds [`synthetic_cache::path`] `number` with a file of `len` bytes.
    pub fn add(&self, number: usize, len: usize, references: &[usize]) -> StorePath {
        let path = synthetic_cache::path(number);
        let nar = nars::file(&vec![b'x'; len]);
        let mut info = PathInfo {
            path: path.clone(),
            nar_hash: Hash::sha256(floe_hash::sha256(&nar)),
            nar_size: nar.len() as u64,
            references: references
                .iter()
                .copied()
                .map(synthetic_cache::path)
                .collect(),
            deriver: None,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        if let Some(key) = &self.key {
            info.sign(&self.dir, key);
        }
        let narinfo = NarInfo {
            url: format!("nar/{path}"),
            compression: Compression::None,
            file_hash: None,
            file_size: Some(info.nar_size),
            info,
        };
        self.insert(narinfo, nar);
        path
    }

    /// Adds a path with its uncompressed NAR.
    pub fn insert(&self, narinfo: NarInfo, nar: Vec<u8>) {
        let part = narinfo.info.path.hash_part();
        self.state.lock().paths.insert(part, (narinfo, nar.into()));
    }

    /// Makes the source fail at a path that it has.
    pub fn inject(&self, path: &StorePath, fault: SourceFault) {
        self.state.lock().faults.insert(path.clone(), fault);
    }

    /// Replies to what [`SourceFault::Held`] and [`SourceFault::HeldQuery`] hold back, and forgets
    /// these faults.
    pub fn release(&self) {
        let mut state = self.state.lock();
        let is_held =
            |fault: &SourceFault| matches!(fault, SourceFault::Held | SourceFault::HeldQuery);
        state.faults.retain(|_, fault| !is_held(fault));
        let bodies = std::mem::take(&mut state.held_bodies);
        let queries = std::mem::take(&mut state.held_queries);
        drop(state);
        for (sender, nar) in bodies {
            send(&sender, nar);
        }
        for (hash_part, reply) in queries {
            reply(self.narinfo(hash_part));
        }
    }

    /// Returns the hash parts of all queries so far.
    pub fn queries(&self) -> Vec<HashPart> {
        self.state.lock().queries.clone()
    }

    /// Returns the paths of all NARs that were opened so far.
    pub fn opened(&self) -> Vec<StorePath> {
        self.state.lock().opened.clone()
    }

    fn narinfo(&self, hash_part: HashPart) -> NarInfoResult {
        let state = self.state.lock();
        let entry = state.paths.get(&hash_part);
        Ok(entry.map(|(narinfo, _)| narinfo.clone()).into())
    }
}

impl Source for MemorySource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn store_dir(&self) -> &StoreDir {
        &self.dir
    }

    fn query(&self, spec: &PathSpec, _: CachePolicy, reply: NarInfoCallback) {
        let hash_part = spec.hash_part();
        let mut state = self.state.lock();
        state.queries.push(hash_part);
        let path = state
            .paths
            .get(&hash_part)
            .map(|(narinfo, _)| &narinfo.info.path);
        let fault = path.and_then(|path| state.faults.get(path));
        if let Some(SourceFault::HeldQuery) = fault {
            state.held_queries.push((hash_part, reply));
            return;
        }
        drop(state);
        reply(self.narinfo(hash_part));
    }

    fn open_nar(&self, narinfo: &NarInfo, _: NarRequest) -> Result<NarStream, Error> {
        let mut state = self.state.lock();
        let path = &narinfo.info.path;
        state.opened.push(path.clone());
        let url = self.nar_url(narinfo);
        let Some((_, nar)) = state.paths.get(&path.hash_part()) else {
            return Err(Error::fetch(&url, "404 Not Found", false));
        };
        let mut nar = nar.clone();
        let (sender, chunks) = mpsc::sync_channel(2);
        match state.faults.get_mut(path) {
            Some(SourceFault::Transient(left)) if *left > 0 => {
                *left -= 1;
                return Err(Error::fetch(&url, "the connection was reset", true));
            }
            Some(SourceFault::Permanent) => return Err(Error::fetch(&url, "410 Gone", false)),
            Some(SourceFault::Held) => state.held_bodies.push((sender, nar)),
            Some(SourceFault::WrongBytes) => {
                let mut wrong = nar.to_vec();
                *wrong.last_mut().unwrap() ^= 1;
                nar = wrong.into();
                send(&sender, nar);
            }
            _ => send(&sender, nar),
        }
        Ok(NarStream::Body(Body::Chunks(Box::new(MemoryBody {
            chunks,
            url,
        }))))
    }

    /// Breaks off the bodies that are held back, as a network does that stops.
    fn abort(&self) {
        self.state.lock().held_bodies.clear();
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource({})", self.name)
    }
}

/// A body that the test may hold back.
#[derive(Debug)]
struct MemoryBody {
    /// The bytes, then `None`.
    chunks: Receiver<Option<Bytes>>,
    url: String,
}

impl ChunkSource for MemoryBody {
    fn try_next(&mut self) -> Option<NextChunk> {
        self.chunks.try_recv().ok().map(Ok)
    }

    fn wait_for_next(&mut self) -> NextChunk {
        let abandoned = |_| Error::fetch(&self.url, "the transfer was abandoned", false);
        self.chunks.recv().map_err(abandoned)
    }
}

/// Sends a whole body. The worker that reads it may be gone.
fn send(sender: &SyncSender<Option<Bytes>>, nar: Bytes) {
    for chunk in [Some(nar), None] {
        let _: Result<(), _> = sender.try_send(chunk);
    }
}
