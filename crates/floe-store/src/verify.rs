//! What `nix-store --verify --check-contents` would find, and nothing changed.
//!
//! 1. under the collector's lock, shared, so that nothing vanishes meanwhile;
//! 2. every row has a tree, or is said to have lost it;
//! 3. every link that `--optimise` made has the contents that its name says;
//! 4. every tree has the hash and the size of its row, all cores at once.

mod fault;

use std::cmp::Reverse;
use std::fs::{self, DirEntry};
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::{slice, thread};

use floe_format::{Hash, PathInfo, StorePath};

use crate::error::{At, StoreError};
use crate::hashing::{Hashing, Stream, Worker};
use crate::locks::{GcLock, Patience};
use crate::reader::StoreReader;
use crate::tree::read::dump;

pub use fault::Fault;

/// What a verification found.
#[derive(Debug, Default)]
pub struct Verification {
    /// How many paths were hashed.
    pub paths: u64,
    /// How many bytes their NARs have.
    pub nar_bytes: u64,
    /// How many links in `.links` were hashed.
    pub links: u64,
    /// What is wrong, in the order of the paths; links last.
    pub faults: Vec<Fault>,
}

/// Watches a verification, and may end it.
pub trait Watch: Sync {
    /// So many paths and bytes of NARs are to be hashed.
    fn begins(&self, _paths: u64, _nar_bytes: u64) {}

    /// A path was hashed.
    fn is_done(&self, _info: &PathInfo) {}

    /// Asked before each path.
    fn goes_on(&self) -> bool {
        true
    }
}

/// Nobody watches.
impl Watch for () {}

impl StoreReader {
    /// Verifies `paths`, or the whole store and its links where none are given. `watch` is told
    /// what is done, from several threads. So many paths are read at once as `jobs` says, else as
    /// suits the machine.
    ///
    /// Errors: those of the database, and [`StoreError::Interrupted`].
    pub fn verify(
        &self,
        paths: &[StorePath],
        jobs: Option<NonZeroUsize>,
        watch: &dyn Watch,
    ) -> Result<Verification, StoreError> {
        let _lock = self.collector_lock(watch)?;
        let mut found = Verification::default();
        let infos = self.present(paths, &mut found)?;
        found.paths = infos.len() as u64;
        found.nar_bytes = infos.iter().map(|info| info.nar_size).sum();
        watch.begins(found.paths, found.nar_bytes);
        let len = |info: &PathInfo| info.nar_size;
        let faults = check_all(infos, jobs, watch, &len, &|info, worker| {
            let fault = self.check_contents(info, worker);
            watch.is_done(info);
            fault
        });
        found.faults.extend(faults?);
        found.faults.sort_by(|a, b| a.place().cmp(&b.place()));
        if paths.is_empty() {
            let links = self.links()?;
            found.links = links.len() as u64;
            let faults = check_all(links, jobs, watch, &len_of_link, &check_link);
            found.faults.extend(faults?);
        }
        Ok(found)
    }

    /// Who may not write the lock cannot keep a collector away, and verifies all the same.
    fn collector_lock(&self, watch: &dyn Watch) -> Result<Option<GcLock>, StoreError> {
        let Some(lock) = GcLock::open_existing(self.layout())? else {
            return Ok(None);
        };
        lock.wait(&Patience::default(), || match watch.goes_on() {
            true => Ok(lock.try_hold()?.then_some(())),
            false => Err(StoreError::Interrupted),
        })?;
        Ok(Some(lock))
    }

    /// The rows to be checked; what has no row or no tree goes to the faults.
    fn present(
        &self,
        paths: &[StorePath],
        found: &mut Verification,
    ) -> Result<Vec<PathInfo>, StoreError> {
        let paths = if paths.is_empty() {
            self.valid_paths()?
        } else {
            paths.to_vec()
        };
        let mut infos = Vec::new();
        for path in paths {
            match self.path_info(&path)? {
                None => found.faults.push(Fault::NotValid(path)),
                Some(info) if fs::symlink_metadata(self.real_path(&path)).is_ok() => {
                    infos.push(info);
                }
                Some(_) => {
                    let mut referrers = self.referrers(&path)?;
                    referrers.retain(|referrer| *referrer != path);
                    found.faults.push(Fault::Disappeared { path, referrers });
                }
            }
        }
        Ok(infos)
    }

    fn check_contents(&self, info: &PathInfo, worker: &Worker) -> Option<Fault> {
        let path = info.path.clone();
        let stream = worker.stream(info.nar_size);
        let (actual, size) = match hash_tree(&self.real_path(&path), stream) {
            Ok(hashed) => hashed,
            Err(error) => return Some(Fault::Unreadable { path, error }),
        };
        if actual != info.nar_hash {
            return Some(Fault::Modified {
                path,
                expected: info.nar_hash,
                actual,
            });
        }
        // Rows of very old Nix have no size, which reads as 0.
        if info.nar_size != 0 && info.nar_size != size {
            return Some(Fault::WrongSize {
                path,
                expected: info.nar_size,
                actual: size,
            });
        }
        None
    }

    fn links(&self) -> Result<Vec<DirEntry>, StoreError> {
        let directory = self.layout().links_dir();
        match fs::read_dir(&directory) {
            Ok(entries) => entries.collect::<Result<_, _>>().at("listing", directory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).at("listing", directory),
        }
    }
}

fn len_of_link(link: &DirEntry) -> u64 {
    link.metadata().map_or(0, |metadata| metadata.len())
}

/// A link's name is the hash of the NAR of its contents.
fn check_link(link: &DirEntry, worker: &Worker) -> Option<Fault> {
    let name = link.file_name().to_string_lossy().into_owned();
    let actual = match hash_tree(&link.path(), worker.stream(len_of_link(link))) {
        Ok((hash, _)) if hash.digest_nix32() == name => return None,
        Ok((hash, _)) => hash.digest_nix32(),
        Err(error) => error.to_string(),
    };
    Some(Fault::ModifiedLink { name, actual })
}

/// Hash and size of the NAR of a tree.
fn hash_tree(path: &std::path::Path, mut hasher: Stream) -> Result<(Hash, u64), StoreError> {
    let mut size = 0;
    dump(path, &mut |chunk| {
        hasher.update(chunk);
        size += chunk.len() as u64;
        Ok::<_, StoreError>(())
    })?;
    Ok((Hash::sha256(hasher.finish()), size))
}

/// Runs `check` over all items on several threads, the largest and the smallest first, and gathers
/// what it found.
fn check_all<T: Sync>(
    mut items: Vec<T>,
    jobs: Option<NonZeroUsize>,
    watch: &dyn Watch,
    len: &dyn Fn(&T) -> u64,
    check: &(dyn Fn(&T, &Worker) -> Option<Fault> + Sync),
) -> Result<Vec<Fault>, StoreError> {
    items.sort_by_cached_key(|item| Reverse(len(item)));
    let hashing = Hashing::of(items.iter().map(len), jobs);
    let left = Mutex::new(items.iter());
    let faults = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for place in hashing.places() {
            let (left, faults) = (&left, &faults);
            scope.spawn(move || {
                let worker = place.take();
                while let Some(item) = next(left, &worker).filter(|_| watch.goes_on()) {
                    let fault = check(item, &worker);
                    faults
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(fault);
                }
            });
        }
    });
    match watch.goes_on() {
        true => Ok(faults.into_inner().unwrap_or_else(PoisonError::into_inner)),
        false => Err(StoreError::Interrupted),
    }
}

fn next<'a, T>(left: &Mutex<slice::Iter<'a, T>>, worker: &Worker) -> Option<&'a T> {
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    match worker.takes_the_smallest() {
        true => left.next_back(),
        false => left.next(),
    }
}
