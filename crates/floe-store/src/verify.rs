//! What `nix-store --verify --check-contents` would find, and nothing changed.
//!
//! 1. under the collector's lock, shared, so that nothing vanishes meanwhile;
//! 2. every row has a tree, or is said to have lost it;
//! 3. every link that `--optimise` made has the contents that its name says;
//! 4. every tree has the hash and the size of its row, all cores at once.

use std::cmp::Reverse;
use std::fs::{self, DirEntry, File};
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::{slice, thread};

use floe_format::{Hash, PathInfo, StorePath};

use crate::error::{At, StoreError};
use crate::hashing::{Hashing, Stream, Worker};
use crate::lock::lock_shared;
use crate::reader::StoreReader;
use crate::tree::read::dump;

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

/// One thing that is wrong in a store.
#[derive(Debug)]
pub enum Fault {
    /// It was asked for, and the database does not have it.
    NotValid(StorePath),
    /// The database has it, the disk does not. `referrers` are valid paths that need it; Nix
    /// drops the row where there are none.
    Disappeared {
        /// The path.
        path: StorePath,
        /// Valid paths that refer to it.
        referrers: Vec<StorePath>,
    },
    /// Its contents are not those that were registered.
    Modified {
        /// The path.
        path: StorePath,
        /// The hash of its row.
        expected: Hash,
        /// The hash of its contents.
        actual: Hash,
    },
    /// Its NAR has another size than its row says, although the hash is right.
    WrongSize {
        /// The path.
        path: StorePath,
        /// The size of its row, in bytes.
        expected: u64,
        /// The size of its NAR, in bytes.
        actual: u64,
    },
    /// It could not be read.
    Unreadable {
        /// The path.
        path: StorePath,
        /// Why not.
        error: StoreError,
    },
    /// A link in `.links` has other contents than its name says.
    ModifiedLink {
        /// Its file name: the hash that it should have.
        name: String,
        /// The hash that it has, or why it has none.
        actual: String,
    },
}

impl StoreReader {
    /// Verifies `paths`, or the whole store and its links where none are given. `progress` is
    /// told the NAR size of each path as it is done, from several threads. So many paths are read
    /// at once as `jobs` says, else as suits the machine.
    pub fn verify(
        &self,
        paths: &[StorePath],
        jobs: Option<NonZeroUsize>,
        progress: &(dyn Fn(&PathInfo) + Sync),
    ) -> Result<Verification, StoreError> {
        let _lock = self.collector_lock()?;
        let mut found = Verification::default();
        let infos = self.present(paths, &mut found)?;
        found.paths = infos.len() as u64;
        found.nar_bytes = infos.iter().map(|info| info.nar_size).sum();
        let len = |info: &PathInfo| info.nar_size;
        found
            .faults
            .extend(check_all(infos, jobs, &len, &|info, worker| {
                let fault = self.check_contents(info, worker);
                progress(info);
                fault
            }));
        found.faults.sort_by(|a, b| a.place().cmp(&b.place()));
        if paths.is_empty() {
            let links = self.links()?;
            found.links = links.len() as u64;
            found
                .faults
                .extend(check_all(links, jobs, &len_of_link, &check_link));
        }
        Ok(found)
    }

    /// Who may not write the lock cannot keep a collector away, and verifies all the same.
    fn collector_lock(&self) -> Result<Option<File>, StoreError> {
        let path = self.layout().state.join("gc.lock");
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => {
                lock_shared(&file, &path)?;
                Ok(Some(file))
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).at("opening the lock file", path),
        }
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

impl Fault {
    /// What faults are sorted by.
    fn place(&self) -> Option<&StorePath> {
        match self {
            Fault::NotValid(path)
            | Fault::Disappeared { path, .. }
            | Fault::Modified { path, .. }
            | Fault::WrongSize { path, .. }
            | Fault::Unreadable { path, .. } => Some(path),
            Fault::ModifiedLink { .. } => None,
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
    len: &dyn Fn(&T) -> u64,
    check: &(dyn Fn(&T, &Worker) -> Option<Fault> + Sync),
) -> Vec<Fault> {
    items.sort_by_cached_key(|item| Reverse(len(item)));
    let hashing = Hashing::of(items.iter().map(len), jobs);
    let left = Mutex::new(items.iter());
    let faults = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for place in hashing.places() {
            let (left, faults) = (&left, &faults);
            scope.spawn(move || {
                let worker = place.take();
                while let Some(item) = next(left, &worker) {
                    let fault = check(item, &worker);
                    faults
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(fault);
                }
            });
        }
    });
    faults.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn next<'a, T>(left: &Mutex<slice::Iter<'a, T>>, worker: &Worker) -> Option<&'a T> {
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    match worker.takes_the_smallest() {
        true => left.next_back(),
        false => left.next(),
    }
}
