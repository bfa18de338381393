//! Verification: finds the problems that `nix-store --verify --check-contents` would find, and
//! changes nothing.
//!
//! 1. It holds the collector's lock shared, so that no path vanishes meanwhile.
//! 2. Each row must parse, and must have a tree on disk.
//! 3. Each link that `--optimise` made must have the contents that its name states.
//! 4. Each tree must have the hash and size of its row. All cores hash at once.

mod problem;

use std::fs;
use std::num::NonZeroUsize;

use floe_format::{PathInfo, StoreDir, StorePath, sum_of_sizes};
use parking_lot::Mutex;

use super::reader::StoreReader;
use crate::db::{Table, has_no_trees};
use crate::disk::{DirectoryEntry, list_directory};
use crate::error::{IoContext, StoreError, is_not_found};
use crate::locks::GcLock;
use crate::progress::{Progress, hash_all};
use crate::tree::hash_tree;
use floe_hash::hash_pool::Worker;

pub use problem::{Damage, ProblemCause, VerifyProblem};

/// The result of a verification.
#[derive(Debug, Default)]
pub struct Verification {
    /// The number of hashed paths.
    pub paths: u64,
    /// The total size of their NARs, in bytes.
    pub nar_bytes: u64,
    /// The number of hashed links in `.links`.
    pub links: u64,
    /// The problems, sorted by path, with the links last.
    pub problems: Vec<VerifyProblem>,
    /// Whether the store directory has no file that may be a path. If the database has paths, the
    /// file system of the store may not be mounted.
    pub has_no_trees: bool,
}

impl Verification {
    /// Returns the valid paths that have problems.
    pub fn damaged_paths(&self, store_dir: &StoreDir) -> Vec<(StorePath, Damage)> {
        let damaged = self.problems.iter().filter_map(|problem| {
            let damage = match &problem.cause {
                ProblemCause::NotValid | ProblemCause::ModifiedLink(_) => return None,
                ProblemCause::Disappeared { .. } => Damage::Missing,
                ProblemCause::DamagedRow(row) => return Some((row.path.clone()?, Damage::Row)),
                _ => Damage::Modified,
            };
            Some((store_dir.parse(&problem.path).ok()?, damage))
        });
        damaged.collect()
    }
}

impl StoreReader {
    /// Verifies `paths`, or the whole store with its links if `paths` is empty. `jobs` limits the
    /// number of paths that are read at once; without it, the number suits the machine.
    ///
    /// Errors: those of the database, and [`StoreError::Interrupted`].
    pub fn verify(
        &self,
        paths: &[StorePath],
        jobs: Option<NonZeroUsize>,
        progress: &dyn Progress,
    ) -> Result<Verification, StoreError> {
        let _lock = self.hold_gc_lock(progress)?;
        let mut verification = Verification {
            has_no_trees: has_no_trees(self.layout()),
            ..Verification::default()
        };
        let infos = self.existing_paths(paths, &mut verification)?;
        verification.paths = infos.len() as u64;
        verification.nar_bytes = sum_of_sizes(infos.iter().map(|info| info.nar_size));
        progress.started(verification.paths, verification.nar_bytes);
        let len = |info: &PathInfo| info.nar_size;
        let problems = check_all(infos, jobs, progress, &len, &|info, worker| {
            let cause = self.check_contents(info, worker);
            progress.path_done(info.nar_size);
            cause.map(|cause| self.problem(&info.path, cause))
        });
        verification.problems.extend(problems?);
        verification.problems.sort_by(|a, b| a.path.cmp(&b.path));
        if paths.is_empty() {
            let links = self.links()?;
            verification.links = links.len() as u64;
            let problems = check_all(links, jobs, progress, &len_of_link, &check_link);
            verification.problems.extend(problems?);
        }
        Ok(verification)
    }

    /// Acquires the collector's lock. A user who may not write the lock file cannot keep a
    /// collector away; the verification then runs without the lock.
    fn hold_gc_lock(&self, progress: &dyn Progress) -> Result<Option<GcLock>, StoreError> {
        let Some(lock) = GcLock::open_existing(self.layout())? else {
            return Ok(None);
        };
        lock.wait(self.lock_wait(), || {
            if progress.should_continue() {
                Ok(lock.try_acquire_shared()?.then_some(()))
            } else {
                Err(StoreError::Interrupted)
            }
        })?;
        Ok(Some(lock))
    }

    /// Returns the rows to check. Adds paths without a row or a tree to the problems.
    fn existing_paths(
        &self,
        paths: &[StorePath],
        verification: &mut Verification,
    ) -> Result<Vec<PathInfo>, StoreError> {
        let mut infos = Vec::new();
        for path in self.readable_paths_of(paths, verification)? {
            let found = self.database().path_info_or_damaged_row(&path)?;
            let cause = match found {
                None => ProblemCause::NotValid,
                Some(Err(row)) => ProblemCause::DamagedRow(row),
                Some(Ok(info)) => {
                    let place = self.real_path(&path);
                    let examined = fs::symlink_metadata(&place);
                    if is_not_found(&examined) {
                        self.disappeared(&path)?
                    } else if let Err(error) = examined.io_context("examine", place) {
                        // A file system that fails tells nothing about the files.
                        ProblemCause::Unreadable(error)
                    } else {
                        infos.push(info);
                        continue;
                    }
                }
            };
            verification.problems.push(self.problem(&path, cause));
        }
        Ok(infos)
    }

    fn disappeared(&self, path: &StorePath) -> Result<ProblemCause, StoreError> {
        let mut referrers = self.referrers(path)?;
        referrers.retain(|referrer| referrer != path);
        let print = |path| self.layout().store_dir.full_path(path);
        let referrers = referrers.iter().map(print).collect();
        Ok(ProblemCause::Disappeared { referrers })
    }

    /// Returns those paths, of `paths` or of the whole store, of which the rows parse. Adds the
    /// other rows to the problems.
    fn readable_paths_of(
        &self,
        paths: &[StorePath],
        verification: &mut Verification,
    ) -> Result<Vec<StorePath>, StoreError> {
        let (mut readable, mut damaged) = (Vec::new(), Vec::new());
        if paths.is_empty() {
            readable = self.readable_paths()?;
            damaged = self.database().damaged_rows()?;
        }
        for path in paths {
            let rows = self.database().damaged_rows_of(path)?;
            // Damaged outputs do not keep the contents from being verified.
            let is_readable = rows.iter().all(|row| row.table != Table::ValidPaths);
            readable.extend(is_readable.then(|| path.clone()));
            damaged.extend(rows);
        }
        let problems = damaged.into_iter().map(|row| VerifyProblem {
            path: row.text.clone(),
            cause: ProblemCause::DamagedRow(row),
        });
        verification.problems.extend(problems);
        Ok(readable)
    }

    fn problem(&self, path: &StorePath, cause: ProblemCause) -> VerifyProblem {
        let path = self.layout().store_dir.full_path(path);
        VerifyProblem { path, cause }
    }

    fn check_contents(&self, info: &PathInfo, worker: &Worker) -> Option<ProblemCause> {
        let expected = info.nar_hash;
        match hash_tree(&self.real_path(&info.path), worker.stream(info.nar_size)) {
            Err(error) => Some(ProblemCause::Unreadable(error)),
            Ok((actual, _)) if actual != expected => {
                Some(ProblemCause::Modified { expected, actual })
            }
            // Rows of very old Nix versions have no size, which reads as 0. Nix adds the size when
            // it verifies the path, and no path without a size can be copied.
            Ok((_, actual)) if info.nar_size != actual => {
                let expected = info.nar_size;
                Some(ProblemCause::WrongSize { expected, actual })
            }
            Ok(_) => None,
        }
    }

    fn links(&self) -> Result<Vec<DirectoryEntry>, StoreError> {
        let directory = self.layout().links_dir();
        let entries = list_directory(&directory);
        if is_not_found(&entries) {
            return Ok(Vec::new());
        }
        let entries = entries.and_then(|entries| entries.collect());
        let mut entries: Vec<DirectoryEntry> = entries.io_context("list", directory)?;
        // A directory is not a link. A later Nix may divide the links among directories.
        entries.retain(|entry| !entry.is_dir().unwrap_or(false));
        Ok(entries)
    }
}

fn len_of_link(link: &DirectoryEntry) -> u64 {
    link.metadata().map_or(0, |metadata| metadata.len())
}

/// Compares the name of a link with the hash of the NAR of its contents.
fn check_link(link: &DirectoryEntry, worker: &Worker) -> Option<VerifyProblem> {
    let name = link.file_name().to_string_lossy().into_owned();
    let actual = match hash_tree(link.path(), worker.stream(len_of_link(link))) {
        Ok((hash, _)) if hash.digest_nix32() == name => return None,
        Ok((hash, _)) => hash.digest_nix32(),
        Err(error) => error.to_string(),
    };
    Some(VerifyProblem {
        path: format!(".links/{name}"),
        cause: ProblemCause::ModifiedLink(actual),
    })
}

/// Runs `check` on all items with several threads and collects the problems.
fn check_all<T: Sync>(
    items: Vec<T>,
    jobs: Option<NonZeroUsize>,
    progress: &dyn Progress,
    len: &dyn Fn(&T) -> u64,
    check: &(dyn Fn(&T, &Worker) -> Option<VerifyProblem> + Sync),
) -> Result<Vec<VerifyProblem>, StoreError> {
    let problems = Mutex::new(Vec::new());
    hash_all(items, jobs, progress, len, &|item, worker| {
        let problem = check(item, worker);
        problems.lock().extend(problem);
    })?;
    Ok(problems.into_inner())
}
