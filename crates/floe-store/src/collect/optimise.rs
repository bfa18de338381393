//! Links equal files of all valid paths through `.links`, as `nix-store --optimise` does, on all
//! cores.

mod dry_run;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use floe_format::{StorePath, sum_of_sizes};
use parking_lot::Mutex;
use rustix::fs::{Dir, syncfs};

use crate::db::DamagedRow;
use crate::error::{IoContext as _, StoreError};
use crate::progress::{Progress, hash_all};
use crate::tree::links::open_links;
use crate::tree::{LinkedTree, TreeOptimiser};
use crate::write::StoreWriter;
use floe_hash::hash_pool::Worker;

/// The result of [`StoreWriter::optimise`].
#[derive(Debug, Default)]
pub struct OptimiseResults {
    /// The number of files that became links to existing files.
    pub files_linked: u64,
    /// The sum of their sizes, in bytes. As in Nix, a file with further hard links counts too.
    pub bytes_freed: u64,
    /// Files that their owner may write. They stay as they are, because another program may have
    /// changed them.
    pub writable: Vec<PathBuf>,
    /// The number of damaged files in `.links` that were replaced. The paths that use them are
    /// damaged.
    pub damaged_links: u64,
    /// The paths of which some files could not be linked.
    pub failures: Vec<StoreError>,
    /// The rows of the database that do not parse. Their paths stay as they are.
    pub damaged_rows: Vec<DamagedRow>,
}

impl StoreWriter {
    /// Links equal files of all valid paths. `jobs` limits the number of paths in work at once.
    ///
    /// Errors: those of the database and of `.links`, and [`StoreError::Interrupted`]. The results
    /// have the paths whose files could not be read or linked.
    pub fn optimise(
        &self,
        jobs: Option<NonZeroUsize>,
        progress: &dyn Progress,
    ) -> Result<OptimiseResults, StoreError> {
        let paths = self.protected_paths()?;
        // A power cut must not replace a file that is on disk by one that is not.
        let store = &self.layout().real_store_dir;
        syncfs(&*self.store.directory).io_context("sync", store)?;
        let directory = self.layout().links_dir();
        let links = open_links(&directory)?;
        let linked = inodes(&links).io_context("list", &directory)?;
        let results = Mutex::new(OptimiseResults::default());
        hash_paths(paths, jobs, progress, &|path, worker| {
            let optimised = self.optimise_path(path, &links, &linked, worker);
            results.lock().add(optimised);
        })?;
        let damaged_rows = self.database().skipped_rows();
        Ok(OptimiseResults {
            damaged_rows,
            ..results.into_inner()
        })
    }

    /// Returns the valid paths with their NAR sizes, after making them temporary roots.
    fn protected_paths(&self) -> Result<Vec<(StorePath, u64)>, StoreError> {
        let mut paths = self.database().paths_with_nar_sizes()?;
        for some in paths.chunks(ROOTS_AT_ONCE) {
            self.add_temp_roots(some.iter().map(|(path, _)| path))?;
        }
        self.wait_for_gc()?;
        let valid = self.database().paths_with_nar_sizes()?;
        let valid: HashSet<StorePath> = valid.into_iter().map(|(path, _)| path).collect();
        paths.retain(|(path, _)| valid.contains(path));
        Ok(paths)
    }

    fn optimise_path(
        &self,
        path: &StorePath,
        links: &Arc<OwnedFd>,
        linked: &HashSet<u64>,
        worker: &Worker,
    ) -> Result<LinkedTree, StoreError> {
        let temporary = self.tree_writer(path).into_empty_tree();
        let temporary = temporary.location().file_name().unwrap_or_default();
        let mut optimiser = TreeOptimiser {
            store: self.store.directory.as_fd(),
            links,
            linked,
            temporary: &format!("{}-link", temporary.to_string_lossy()),
            worker,
            buffer: &mut Vec::new(),
        };
        optimiser.optimise(path.as_str(), &self.layout().real_path(path))
    }
}

impl OptimiseResults {
    fn add(&mut self, optimised: Result<LinkedTree, StoreError>) {
        match optimised {
            Ok(tree) => {
                self.files_linked += tree.files;
                self.bytes_freed += tree.bytes;
                self.writable.extend(tree.writable);
                self.damaged_links += tree.damaged_links;
            }
            Err(error) => self.failures.push(error),
        }
    }
}

/// Calls `hash` for each path with its NAR size, on several threads.
fn hash_paths(
    paths: Vec<(StorePath, u64)>,
    jobs: Option<NonZeroUsize>,
    progress: &dyn Progress,
    hash: &(dyn Fn(&StorePath, &Worker) + Sync),
) -> Result<(), StoreError> {
    let nar_size = |path: &(StorePath, u64)| path.1;
    progress.started(paths.len() as u64, sum_of_sizes(paths.iter().map(nar_size)));
    hash_all(paths, jobs, progress, &nar_size, &|path, worker| {
        hash(&path.0, worker);
        progress.path_done(path.1);
    })
}

/// Returns the inodes of the files of a directory.
fn inodes(directory: &OwnedFd) -> rustix::io::Result<HashSet<u64>> {
    Dir::read_from(directory)?
        .map(|entry| Ok(entry?.ino()))
        .collect()
}

/// A running collector receives each root alone, so an interrupt should not wait for all of them.
const ROOTS_AT_ONCE: usize = 1000;
