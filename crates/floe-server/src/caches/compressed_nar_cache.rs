//! Compressed NARs in a directory of the server's own.
//!
//! 1. A client that accepts zstd gets the compressed NAR with its length, if it is in the cache.
//! 2. Otherwise the client gets the NAR as it is, and a thread with a low priority compresses the
//!    NAR for later requests.
//! 3. A compressed NAR is kept only if the bytes that went into it had the NAR hash.
//! 4. If the directory is larger than its limit, the least recently used files are removed.
//!
//! The files are named by NAR hash. The server reads the directory once, at its start, and then
//! works with an index in memory. A file is written under a temporary name and renamed at the end,
//! so a file with a final name is complete even if the process was killed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use floe_format::{Hash, nix32};
use floe_store::tree::dump_path;
use floe_store::{StoreError, WrittenFile, list_directory};
use parking_lot::{Condvar, Mutex};

use super::narinfo_cache::CachedNarInfo;
use super::tree_identity::TreeIdentity;
use crate::config::CompressedCacheOptions;
use crate::error::ServeError;
use crate::warning::RepeatedWarning;

#[derive(Debug)]
pub(crate) struct CompressedNarCache {
    dir: PathBuf,
    max_bytes: u64,
    index: Mutex<Index>,
    /// Wakes the thread that compresses, for a new job or for the end.
    wake: Condvar,
}

/// The contents of the directory, and the NARs that are to be compressed.
#[derive(Debug, Default)]
struct Index {
    /// By NAR hash.
    files: HashMap<String, CachedFile>,
    bytes: u64,
    /// Counts the uses of all files. It orders them without a clock.
    uses: u64,
    queue: VecDeque<CompressionJob>,
    /// The NAR hashes of the queue, and of the job that is under way.
    queued: HashSet<String>,
    /// The trees that are not compressed again: their bytes do not have the NAR hash, or the
    /// compressed NAR is larger than the whole cache may be.
    uncacheable: HashMap<String, TreeIdentity>,
    is_stopped: bool,
}

#[derive(Debug)]
struct CachedFile {
    len: u64,
    last_use: u64,
}

#[derive(Debug)]
struct CompressionJob {
    /// The NAR hash in base 32.
    name: String,
    nar_hash: Hash,
    path: PathBuf,
    identity: TreeIdentity,
}

impl CompressedNarCache {
    /// Reads the directory, and makes it if it is absent.
    ///
    /// Errors: the directory cannot be made or read.
    pub(crate) fn open(options: CompressedCacheOptions) -> Result<CompressedNarCache, ServeError> {
        let failed = |action| {
            let path = options.dir.clone();
            move |source| ServeError::Io {
                action,
                path,
                source,
            }
        };
        let reading = "read the cache of compressed NARs";
        fs::create_dir_all(&options.dir).map_err(failed("create the cache of compressed NARs"))?;
        let mut found = Vec::new();
        for entry in list_directory(&options.dir).map_err(failed(reading))? {
            let entry = entry.map_err(failed(reading))?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if name.starts_with(TEMPORARY) {
                // A server that was killed has left it.
                let _: io::Result<()> = fs::remove_file(entry.path());
            } else if let Some(hash) = name.strip_suffix(SUFFIX).filter(|hash| is_hash(hash))
                && let Ok(metadata) = entry.metadata()
            {
                if metadata.len() == 0 {
                    // No NAR compresses to nothing. A file system after a power failure may have
                    // the name of a file but not its contents.
                    let _: io::Result<()> = fs::remove_file(entry.path());
                    continue;
                }
                let modified = metadata.modified().ok();
                found.push((modified, hash.to_owned(), metadata.len()));
            }
        }
        // The last uses before this start are not known. The times of modification stand for them.
        found.sort();
        let mut index = Index::default();
        for (_, hash, len) in found {
            index.insert(hash, len);
        }
        let cache = CompressedNarCache {
            dir: options.dir,
            max_bytes: options.max_bytes,
            index: Mutex::new(index),
            wake: Condvar::new(),
        };
        cache.evict(&mut cache.index.lock());
        Ok(cache)
    }

    /// Opens the compressed NAR with this hash, and returns it with its length.
    pub(crate) fn open_ready(&self, nar_hash: &str) -> Option<(File, u64)> {
        let mut index = self.index.lock();
        index.uses += 1;
        let now = index.uses;
        index.files.get_mut(nar_hash)?.last_use = now;
        let file = File::open(self.file(nar_hash)).and_then(|file| {
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        if file.is_err() {
            // It was removed from outside.
            index.remove(nar_hash);
        }
        file.ok()
    }

    /// Queues a NAR for compression, unless the queue is full.
    pub(crate) fn enqueue(&self, narinfo: &CachedNarInfo, path: PathBuf, identity: TreeIdentity) {
        let name = narinfo.nar_hash();
        let mut index = self.index.lock();
        if index.uncacheable.get(name) == Some(&identity) {
            return;
        }
        if index.queue.len() < QUEUE_MAX && index.queued.insert(name.into()) {
            index.queue.push_back(CompressionJob {
                name: name.into(),
                nar_hash: narinfo.info.nar_hash,
                path,
                identity,
            });
            self.wake.notify_one();
        }
    }

    /// Compresses NARs until the cache is stopped. Runs in a thread of its own.
    pub(crate) fn run(&self, warn: &dyn Fn(&str)) {
        // This changes the priority of this thread alone. Without it, compression is only less
        // polite.
        let _: rustix::io::Result<i32> = rustix::process::nice(NICENESS);
        let warning = RepeatedWarning::default();
        while let Some(job) = self.next_job() {
            let made = self.make(&job);
            let mut index = self.index.lock();
            index.queued.remove(&job.name);
            match made {
                // All other files would have to go for this one.
                Ok(Some(len)) if len > self.max_bytes => {
                    let _: io::Result<()> = fs::remove_file(self.file(&job.name));
                    index.uncacheable.insert(job.name, job.identity);
                }
                Ok(Some(len)) => {
                    index.insert(job.name, len);
                    self.evict(&mut index);
                }
                Ok(None) => {
                    index.uncacheable.insert(job.name, job.identity);
                    drop(index);
                    warn(&format!(
                        "skipping the compression of {}: its contents differ from the registered \
                         NAR",
                        job.path.display()
                    ));
                }
                Err(_) if index.is_stopped => return,
                Err(error) => {
                    drop(index);
                    // A full disk fails for each NAR.
                    if warning.is_due(Instant::now()) {
                        warn(&format!("cannot compress {}: {error}", job.path.display()));
                    }
                }
            }
        }
    }

    /// Ends [`CompressedNarCache::run`], which abandons the NAR that it is compressing.
    pub(crate) fn stop(&self) {
        self.index.lock().is_stopped = true;
        self.wake.notify_all();
    }

    fn next_job(&self) -> Option<CompressionJob> {
        let must_wait = |index: &mut Index| index.queue.is_empty() && !index.is_stopped;
        let mut index = self.index.lock();
        self.wake.wait_while(&mut index, must_wait);
        if index.is_stopped {
            None
        } else {
            index.queue.pop_front()
        }
    }

    /// Compresses a NAR into a file, and returns the file's length. `None` if the bytes of the NAR
    /// do not have the hash.
    fn make(&self, job: &CompressionJob) -> Result<Option<u64>, StoreError> {
        let temporary = self
            .dir
            .join(format!("{TEMPORARY}{}-{}", std::process::id(), job.name));
        let made = self.compress(job, &temporary);
        if let Ok(Some(_)) = made {
            fs::rename(&temporary, self.file(&job.name))
                .map_err(|source| io_error("rename", &temporary, source))?;
        } else {
            let _: io::Result<()> = fs::remove_file(&temporary);
        }
        made
    }

    fn compress(&self, job: &CompressionJob, to: &Path) -> Result<Option<u64>, StoreError> {
        let writing = |source| io_error("write", to, source);
        let mut file = WrittenFile::create_or_truncate(to).map_err(writing)?;
        match self.encode(job, &mut file, to) {
            Ok(len) => file.close().map(|()| len).map_err(writing),
            Err(error) => {
                file.discard();
                Err(error)
            }
        }
    }

    /// Writes the compressed NAR into a file, and returns as [`CompressedNarCache::make`] does.
    fn encode(
        &self,
        job: &CompressionJob,
        file: &mut WrittenFile,
        to: &Path,
    ) -> Result<Option<u64>, StoreError> {
        let writing = |source| io_error("write", to, source);
        let mut encoder = zstd::stream::write::Encoder::new(file, ZSTD_LEVEL).map_err(writing)?;
        let mut hasher = floe_hash::Sha256::new();
        dump_path::<StoreError>(&job.path, &mut |chunk| {
            if self.index.lock().is_stopped {
                return Err(writing(io::ErrorKind::Interrupted.into()));
            }
            hasher.update(chunk);
            encoder.write_all(chunk).map_err(writing)
        })?;
        let file = encoder.finish().map_err(writing)?.as_file();
        // After a power failure, a final name must not stand for missing contents.
        file.sync_data().map_err(writing)?;
        let len = file.metadata().map_err(writing)?.len();
        Ok((Hash::sha256(hasher.finish()) == job.nar_hash).then_some(len))
    }

    fn evict(&self, index: &mut Index) {
        while index.bytes > self.max_bytes {
            let oldest = index.files.iter().min_by_key(|(_, file)| file.last_use);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else {
                return;
            };
            let _: io::Result<()> = fs::remove_file(self.file(&name));
            index.remove(&name);
        }
    }

    fn file(&self, nar_hash: &str) -> PathBuf {
        self.dir.join(format!("{nar_hash}{SUFFIX}"))
    }
}

impl Index {
    fn insert(&mut self, name: String, len: u64) {
        self.remove(&name);
        self.uses += 1;
        self.bytes += len;
        let last_use = self.uses;
        self.files.insert(name, CachedFile { len, last_use });
    }

    fn remove(&mut self, name: &str) {
        if let Some(file) = self.files.remove(name) {
            self.bytes -= file.len;
        }
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io {
        action,
        path: path.into(),
        source,
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == nix32::encoded_len(32) && text.chars().all(nix32::is_digit)
}

const SUFFIX: &str = ".nar.zst";
const TEMPORARY: &str = "temporary-";

/// The default of Nix. Higher levels save little, and take several times as long.
pub(crate) const ZSTD_LEVEL: i32 = 3;

/// If the queue is full, a NAR is queued by a later request.
const QUEUE_MAX: usize = 1024;

/// Every thread that responds to clients comes first.
const NICENESS: i32 = 10;
