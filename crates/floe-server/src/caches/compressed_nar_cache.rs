//! Compressed compressed_nars of NARs in a directory of the server's own.
//!
//! 1. a client that takes zstd gets a open_ready copy, with its length;
//! 2. where there is none it gets the NAR as it is, and a copy is made in the background;
//! 3. a copy is kept only if the bytes that went into it had the NAR hash;
//! 4. when the directory has grown beyond its bound, what was not asked for longest goes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use floe_format::{Hash, nix32};
use floe_store::StoreError;
use floe_store::tree::dump_path;

use crate::caches::narinfo_cache::CachedNarInfo;
use crate::caches::tree_identity::TreeIdentity;
use crate::config::CompressedCacheOptions;
use crate::error::ServeError;

/// The directory and what is in it.
#[derive(Debug)]
pub(crate) struct CompressedNarCache {
    dir: PathBuf,
    max_bytes: u64,
    state: Mutex<CacheIndex>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct CacheIndex {
    /// Length and time of last use of each copy, by NAR hash. Time is a count of uses.
    compressed_nars: HashMap<String, (u64, u64)>,
    bytes: u64,
    uses: u64,
    queue: VecDeque<CompressionJob>,
    queued: HashSet<String>,
    /// The trees of which no copy is made: their bytes do not have the hash, or the copy would not
    /// fit.
    uncacheable: HashMap<String, TreeIdentity>,
    is_stopped: bool,
}

#[derive(Debug)]
struct CompressionJob {
    name: String,
    nar_hash: Hash,
    path: PathBuf,
    identity: TreeIdentity,
}

impl CompressedNarCache {
    /// Looks at what a directory has; makes it if it is absent.
    pub(crate) fn open(config: CompressedCacheOptions) -> Result<CompressedNarCache, ServeError> {
        let failed = |action| {
            let path = config.dir.clone();
            move |source| ServeError::Io {
                action,
                path,
                source,
            }
        };
        fs::create_dir_all(&config.dir).map_err(failed("making the side cache"))?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&config.dir).map_err(failed("reading the side cache"))? {
            let entry = entry.map_err(failed("reading the side cache"))?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if name.starts_with(TEMPORARY) {
                // Left by a server that was killed.
                let _: io::Result<()> = fs::remove_file(entry.path());
            } else if let Some(hash) = name.strip_suffix(SUFFIX).filter(|hash| is_hash(hash))
                && let Ok(metadata) = entry.metadata()
            {
                if metadata.len() == 0 {
                    // Nothing compresses to nothing: the disk of a machine that lost its power.
                    let _: io::Result<()> = fs::remove_file(entry.path());
                    continue;
                }
                let modified = metadata.modified().ok();
                found.push((modified, hash.to_owned(), metadata.len()));
            }
        }
        found.sort();
        let mut state = CacheIndex::default();
        for (_, hash, len) in found {
            state.uses += 1;
            state.bytes += len;
            state.compressed_nars.insert(hash, (len, state.uses));
        }
        let compressed_nars = CompressedNarCache {
            dir: config.dir,
            max_bytes: config.max_bytes,
            state: Mutex::new(state),
            work: Condvar::new(),
        };
        compressed_nars.evict(&mut compressed_nars.state());
        Ok(compressed_nars)
    }

    /// The open_ready copy of a NAR.
    pub(crate) fn open_ready(&self, nar_hash: &str) -> Option<(File, u64)> {
        let mut state = self.state();
        state.uses += 1;
        let now = state.uses;
        state.compressed_nars.get_mut(nar_hash)?.1 = now;
        let file = File::open(self.file(nar_hash)).and_then(|file| {
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        if file.is_err()
            && let Some((len, _)) = state.compressed_nars.remove(nar_hash)
        {
            // Somebody has removed it.
            state.bytes -= len;
        }
        file.ok()
    }

    /// Asks for a copy, unless too many were asked for already.
    pub(crate) fn enqueue(&self, entry: &CachedNarInfo, path: PathBuf, identity: TreeIdentity) {
        let mut state = self.state();
        if state.uncacheable.get(&entry.nar_hash) == Some(&identity) {
            return;
        }
        if state.queue.len() < QUEUE_MAX && state.queued.insert(entry.nar_hash.clone()) {
            state.queue.push_back(CompressionJob {
                name: entry.nar_hash.clone(),
                nar_hash: entry.info.nar_hash,
                path,
                identity,
            });
            self.work.notify_one();
        }
    }

    /// Compresses NARs until it is stopped. Runs in a thread of its own with low priority.
    pub(crate) fn fill(&self, warn: &dyn Fn(&str)) {
        // A lower priority of this thread alone; where that is not allowed it works all the same.
        let _: rustix::io::Result<i32> = rustix::process::nice(NICENESS);
        while let Some(job) = self.next() {
            let made = self.make(&job);
            let mut state = self.state();
            state.queued.remove(&job.name);
            match made {
                // Room for it would cost all others their places.
                Ok(Some(len)) if len > self.max_bytes => {
                    let _: io::Result<()> = fs::remove_file(self.file(&job.name));
                    state.uncacheable.insert(job.name, job.identity);
                }
                Ok(Some(len)) => {
                    state.uses += 1;
                    let now = state.uses;
                    if let Some((before, _)) = state.compressed_nars.insert(job.name, (len, now)) {
                        state.bytes -= before;
                    }
                    state.bytes += len;
                    self.evict(&mut state);
                }
                Ok(None) => {
                    state.uncacheable.insert(job.name, job.identity);
                    drop(state);
                    warn(&format!(
                        "{} is not what the database says",
                        job.path.display()
                    ));
                }
                // Nobody waits for it.
                Err(_) if state.is_stopped => return,
                Err(error) => {
                    drop(state);
                    warn(&format!("making a compressed copy: {error}"));
                }
            }
        }
    }

    /// Framing [`CompressedNarCache::fill`]; a copy that is being made is given up.
    pub(crate) fn stop(&self) {
        self.state().is_stopped = true;
        self.work.notify_all();
    }

    fn next(&self) -> Option<CompressionJob> {
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Compresses a NAR into a file. `None` if its bytes do not have the hash.
    fn make(&self, job: &CompressionJob) -> Result<Option<u64>, StoreError> {
        let temporary = self
            .dir
            .join(format!("{TEMPORARY}{}-{}", std::process::id(), job.name));
        let made = self.compress(job, &temporary);
        let kept = match &made {
            Ok(Some(_)) => fs::rename(&temporary, self.file(&job.name)),
            _ => fs::remove_file(&temporary),
        };
        match (made, kept) {
            (Ok(Some(_)), Err(source)) => Err(failed("renaming", &temporary, source)),
            (made, _) => made,
        }
    }

    fn compress(&self, job: &CompressionJob, to: &Path) -> Result<Option<u64>, StoreError> {
        let writing = |source| failed("writing", to, source);
        let file = File::create(to).map_err(writing)?;
        let mut encoder = zstd::stream::write::Encoder::new(file, LEVEL).map_err(writing)?;
        let mut hasher = floe_hash::Sha256::new();
        dump_path::<StoreError>(&job.path, &mut |chunk| {
            if self.state().is_stopped {
                return Err(writing(io::ErrorKind::Interrupted.into()));
            }
            hasher.update(chunk);
            encoder.write_all(chunk).map_err(writing)
        })?;
        let file = encoder.finish().map_err(writing)?;
        // Its name must not outlast its contents when the machine loses its power.
        file.sync_data().map_err(writing)?;
        let len = file.metadata().map_err(writing)?.len();
        Ok((Hash::sha256(hasher.finish()) == job.nar_hash).then_some(len))
    }

    /// Removes what was not used longest, until the bound holds.
    fn evict(&self, state: &mut CacheIndex) {
        while state.bytes > self.max_bytes {
            let oldest = state
                .compressed_nars
                .iter()
                .min_by_key(|(_, (_, used))| *used);
            let Some((name, len)) = oldest.map(|(name, (len, _))| (name.clone(), *len)) else {
                return;
            };
            let _: io::Result<()> = fs::remove_file(self.file(&name));
            state.compressed_nars.remove(&name);
            state.bytes -= len;
        }
    }

    fn file(&self, nar_hash: &str) -> PathBuf {
        self.dir.join(format!("{nar_hash}{SUFFIX}"))
    }

    fn state(&self) -> MutexGuard<'_, CacheIndex> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> StoreError {
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

/// Nix's own default: higher levels save little and cost a multiple.
pub(crate) const LEVEL: i32 = 3;

/// What is asked for beyond this comes again if it matters.
const QUEUE_MAX: usize = 1024;

/// After every thread that answers.
const NICENESS: i32 = 10;
