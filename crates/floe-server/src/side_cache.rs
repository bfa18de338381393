//! Compressed copies of NARs in a directory of the server's own.
//!
//! 1. a client that takes zstd gets a ready copy, with its length;
//! 2. where there is none it gets the NAR as it is, and a copy is made in the background;
//! 3. a copy is kept only if the bytes that went into it had the NAR hash;
//! 4. when the directory has grown beyond its bound, what was not asked for longest goes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use floe_format::{Hash, base32};
use floe_store::StoreError;
use floe_store::tree::read::dump;

use crate::config::SideCache;
use crate::error::ServeError;
use crate::identity::Identity;
use crate::lookup::Entry;

/// The directory and what is in it.
#[derive(Debug)]
pub(crate) struct SideCopies {
    dir: PathBuf,
    bytes_max: u64,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Length and time of last use of each copy, by NAR hash. Time is a count of uses.
    copies: HashMap<String, (u64, u64)>,
    bytes: u64,
    uses: u64,
    queue: VecDeque<Wish>,
    queued: HashSet<String>,
    /// The trees of which no copy is made: their bytes do not have the hash, or the copy would not
    /// fit.
    hopeless: HashMap<String, Identity>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Wish {
    name: String,
    nar_hash: Hash,
    path: PathBuf,
    identity: Identity,
}

impl SideCopies {
    /// Looks at what a directory has; makes it if it is absent.
    pub(crate) fn open(config: SideCache) -> Result<SideCopies, ServeError> {
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
        let mut state = State::default();
        for (_, hash, len) in found {
            state.uses += 1;
            state.bytes += len;
            state.copies.insert(hash, (len, state.uses));
        }
        let copies = SideCopies {
            dir: config.dir,
            bytes_max: config.bytes_max,
            state: Mutex::new(state),
            work: Condvar::new(),
        };
        copies.evict(&mut copies.state());
        Ok(copies)
    }

    /// The ready copy of a NAR.
    pub(crate) fn ready(&self, nar_hash: &str) -> Option<(File, u64)> {
        let mut state = self.state();
        state.uses += 1;
        let now = state.uses;
        state.copies.get_mut(nar_hash)?.1 = now;
        let file = File::open(self.file(nar_hash)).and_then(|file| {
            let len = file.metadata()?.len();
            Ok((file, len))
        });
        if file.is_err()
            && let Some((len, _)) = state.copies.remove(nar_hash)
        {
            // Somebody has removed it.
            state.bytes -= len;
        }
        file.ok()
    }

    /// Asks for a copy, unless too many were asked for already.
    pub(crate) fn wish(&self, entry: &Entry, path: PathBuf, identity: Identity) {
        let mut state = self.state();
        if state.hopeless.get(&entry.nar_hash) == Some(&identity) {
            return;
        }
        if state.queue.len() < QUEUE_MAX && state.queued.insert(entry.nar_hash.clone()) {
            state.queue.push_back(Wish {
                name: entry.nar_hash.clone(),
                nar_hash: entry.info.nar_hash,
                path,
                identity,
            });
            self.work.notify_one();
        }
    }

    /// Makes copies until it is stopped. Runs in a thread of its own, after everybody else.
    pub(crate) fn fill(&self, warn: &dyn Fn(&str)) {
        // A lower priority of this thread alone; where that is not allowed it works all the same.
        let _: rustix::io::Result<i32> = rustix::process::nice(NICENESS);
        while let Some(wish) = self.next() {
            let made = self.make(&wish);
            let mut state = self.state();
            state.queued.remove(&wish.name);
            match made {
                // Room for it would cost all others their places.
                Ok(Some(len)) if len > self.bytes_max => {
                    let _: io::Result<()> = fs::remove_file(self.file(&wish.name));
                    state.hopeless.insert(wish.name, wish.identity);
                }
                Ok(Some(len)) => {
                    state.uses += 1;
                    let now = state.uses;
                    if let Some((before, _)) = state.copies.insert(wish.name, (len, now)) {
                        state.bytes -= before;
                    }
                    state.bytes += len;
                    self.evict(&mut state);
                }
                Ok(None) => {
                    state.hopeless.insert(wish.name, wish.identity);
                    drop(state);
                    warn(&format!(
                        "{} is not what the database says",
                        wish.path.display()
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

    /// Ends [`SideCopies::fill`]; a copy that is being made is given up.
    pub(crate) fn stop(&self) {
        self.state().is_stopped = true;
        self.work.notify_all();
    }

    fn next(&self) -> Option<Wish> {
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(wish) = state.queue.pop_front() {
                return Some(wish);
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Compresses a NAR into a file. `None` if its bytes do not have the hash.
    fn make(&self, wish: &Wish) -> Result<Option<u64>, StoreError> {
        let temporary = self
            .dir
            .join(format!("{TEMPORARY}{}-{}", std::process::id(), wish.name));
        let made = self.compress(wish, &temporary);
        let kept = match &made {
            Ok(Some(_)) => fs::rename(&temporary, self.file(&wish.name)),
            _ => fs::remove_file(&temporary),
        };
        match (made, kept) {
            (Ok(Some(_)), Err(source)) => Err(failed("renaming", &temporary, source)),
            (made, _) => made,
        }
    }

    fn compress(&self, wish: &Wish, to: &Path) -> Result<Option<u64>, StoreError> {
        let writing = |source| failed("writing", to, source);
        let file = File::create(to).map_err(writing)?;
        let mut encoder = zstd::stream::write::Encoder::new(file, LEVEL).map_err(writing)?;
        let mut hasher = floe_hash::Sha256::new();
        dump::<StoreError>(&wish.path, &mut |chunk| {
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
        Ok((Hash::sha256(hasher.finish()) == wish.nar_hash).then_some(len))
    }

    /// Removes what was not used longest, until the bound holds.
    fn evict(&self, state: &mut State) {
        while state.bytes > self.bytes_max {
            let oldest = state.copies.iter().min_by_key(|(_, (_, used))| *used);
            let Some((name, len)) = oldest.map(|(name, (len, _))| (name.clone(), *len)) else {
                return;
            };
            let _: io::Result<()> = fs::remove_file(self.file(&name));
            state.copies.remove(&name);
            state.bytes -= len;
        }
    }

    fn file(&self, nar_hash: &str) -> PathBuf {
        self.dir.join(format!("{nar_hash}{SUFFIX}"))
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
    text.len() == base32::encoded_len(32) && text.chars().all(base32::is_digit)
}

const SUFFIX: &str = ".nar.zst";
const TEMPORARY: &str = "temporary-";

/// Nix's own default: higher levels save little and cost a multiple.
pub(crate) const LEVEL: i32 = 3;

/// What is asked for beyond this comes again if it matters.
const QUEUE_MAX: usize = 1024;

/// After every thread that answers.
const NICENESS: i32 = 10;
