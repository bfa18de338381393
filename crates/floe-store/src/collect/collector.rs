//! The garbage collector: deletes the paths that no root keeps.
//!
//! The collector deletes the same files as `nix-store --gc` of the newest Nix. Its order of locks
//! is Nix's (gc.cc), so collectors and builders of all Nix versions may run at the same time:
//!
//! 1. Remove the file `reserved`, so that SQLite can work on a full disk.
//! 2. Acquire `gc.lock`. From now on a process with a new temporary root connects to the socket.
//! 3. Create the socket.
//! 4. Find the roots and the dead paths.
//! 5. Delete rows and files (`deletion`), then the links in `.links` that no path uses.
//!
//! A kill at any moment leaves paths that are whole, and files without a row, which the next
//! collection deletes.
//!
//! Not guaranteed: that no dead path stays. A path that a process used for a moment stays until the
//! next collection.

mod deletion;
mod garbage;
mod path_graph;
mod received_roots;
mod specific_paths;

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;

use floe_format::{HashPart, StorePath};
use parking_lot::Mutex;

use crate::db::{DamagedRow, Database, DatabaseSpace};
use crate::disk::StoreLayout;
use crate::error::StoreError;
use crate::locks::GcLock;
use crate::open_store::{Purpose, WritableStore, remove_reserved, reserve_space};
use crate::options::WriteOptions;
use crate::progress::Progress;
use crate::roots::{FailedRoots, FoundRoots, RootSearch, RuntimeRoots, Unreadable};
use crate::tree::links::{UnusedLinks, remove_unused_links};
use crate::write::Recovery;
use deletion::{Deletion, Remover};
pub use garbage::{DeadFile, Garbage};
use garbage::{DeadPaths, hash_parts};
use received_roots::{ReceivedRoots, RootsServer};
pub use specific_paths::{AlivePath, DeleteError, DeleteOptions};

/// The settings that decide which paths are garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcSettings {
    /// Whether a live derivation keeps its outputs (`keep-outputs`).
    pub keep_outputs: bool,
    /// Whether a live path keeps its deriver (`keep-derivations`).
    pub keep_derivations: bool,
    /// Where the paths that running processes use are found.
    pub runtime_roots: RuntimeRoots,
    /// Whether to delete paths that a root names and the database does not have. Otherwise such a
    /// root stops the deletion.
    pub ignore_unregistered_roots: bool,
    /// Whether a collection makes the database file smaller at its end.
    pub vacuums: bool,
}

impl Default for GcSettings {
    /// Nix's defaults.
    fn default() -> GcSettings {
        GcSettings {
            keep_outputs: false,
            keep_derivations: true,
            runtime_roots: RuntimeRoots::Proc,
            ignore_unregistered_roots: false,
            vacuums: false,
        }
    }
}

/// The result of a collection.
#[derive(Debug, Default)]
pub struct GcResults {
    /// The number of deleted paths and other files of the store directory.
    pub paths: u64,
    /// The sum of the sizes of their files, in bytes. Files with other hard links than the one in
    /// `.links` count as nothing, as in Nix.
    pub bytes_freed: u64,
    /// Dead paths that stay because they refer to each other in a circle, which only a damaged
    /// database has.
    pub circular: Vec<StorePath>,
    /// The number of links in `.links` that were removed.
    pub links: u64,
    /// How many bytes hard links save, after the collection.
    pub bytes_saved_by_links: u64,
    /// The files that could not be removed. They are no longer valid paths.
    pub failures: Vec<DeleteFailure>,
    /// The number of links in `gcroots/auto` to nothing that were removed.
    pub stale_registrations: usize,
    /// The places that could not be read. They may have held further roots.
    pub unreadable: Vec<Unreadable>,
    /// The rows of the database that do not parse. The paths that they name stay.
    pub damaged_rows: Vec<DamagedRow>,
    /// The size of the database at the end of a complete collection.
    pub database: Option<DatabaseSpace>,
    /// By how many bytes a vacuum made the database smaller.
    pub database_bytes_freed: u64,
    /// Whether another process reads the database, so that its file becomes smaller only later.
    pub database_is_read: bool,
}

/// A file that could not be removed completely.
#[derive(Debug, thiserror::Error)]
#[error("cannot delete {path}: {source}")]
pub struct DeleteFailure {
    /// Its place on disk.
    pub path: PathBuf,
    /// The first error of the system.
    pub source: io::Error,
}

/// A store that is opened for deletions.
#[derive(Debug)]
pub struct Collector {
    store: WritableStore,
}

impl Collector {
    /// Opens an existing store.
    ///
    /// Errors: [`StoreError::NoStore`], [`StoreError::SymlinkedStore`],
    /// [`StoreError::DaemonOwned`], [`StoreError::Schema`], and those of the system and of SQLite.
    pub fn open(layout: StoreLayout, options: &WriteOptions) -> Result<Collector, StoreError> {
        let store = WritableStore::open(layout, options, Purpose::Collect)?;
        Ok(Collector { store })
    }

    /// Deletes all dead paths, or some: it ends after the deletion with which more than `max_freed`
    /// bytes are freed. The results are complete even after an error.
    ///
    /// Errors: those of locks, of roots and of the database, and [`StoreError::Interrupted`]. A
    /// file that the system refuses to remove is not an error; the results name it.
    pub fn collect(
        &self,
        settings: &GcSettings,
        max_freed: Option<u64>,
        progress: &dyn Progress,
    ) -> (GcResults, Result<(), StoreError>) {
        let (mut results, collected) = self.with_roots(settings, |collection| {
            let dead = collection.find_dead(settings, progress)?;
            // The files of a dead run may be those of a path that has lost its row.
            let is_whole = max_freed.is_none() && !dead.keeps_all;
            // As in Nix, a limit of 0 bytes deletes no path.
            if max_freed != Some(0) {
                collection.delete(dead, max_freed, progress)?;
            }
            collection.finish(is_whole)
        });
        let ended = collected.and_then(|()| self.end(settings, &mut results, progress));
        (results, ended)
    }

    /// Makes the database smaller if wanted, and finds its size. Other collections need not wait
    /// for this.
    fn end(
        &self,
        settings: &GcSettings,
        results: &mut GcResults,
        progress: &dyn Progress,
    ) -> Result<(), StoreError> {
        let database = self.store.database();
        let before = database.space()?;
        if settings.vacuums {
            remove_reserved(&self.store.layout)?;
            let vacuumed = database.vacuum(&|| progress.should_continue());
            reserve_space(&self.store.layout);
            results.database_is_read = !vacuumed?;
        }
        let after = database.space()?;
        results.database_bytes_freed = before.bytes.saturating_sub(after.bytes);
        results.database = Some(after);
        Ok(())
    }

    /// Acquires the locks, finds the roots, and runs a collection that processes can send roots to.
    fn with_roots<E: From<StoreError>>(
        &self,
        settings: &GcSettings,
        run: impl FnOnce(&Collection<'_>) -> Result<(), E>,
    ) -> (GcResults, Result<(), E>) {
        let results = Mutex::new(GcResults::default());
        let collected = self.lock_and_run(settings, &results, run);
        reserve_space(&self.store.layout);
        (results.into_inner(), collected)
    }

    fn lock_and_run<E: From<StoreError>>(
        &self,
        settings: &GcSettings,
        results: &Mutex<GcResults>,
        run: impl FnOnce(&Collection<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let layout = &self.store.layout;
        remove_reserved(layout)?;
        let lock = GcLock::open(layout)?;
        lock.wait(&self.store.lock_wait, || {
            Ok(lock.try_acquire_exclusive()?.then_some(()))
        })?;
        let received = ReceivedRoots::default();
        let server = RootsServer::bind(layout, &received)?;
        thread::scope(|scope| {
            let _running = server.start(scope)?;
            let database = self.store.database();
            let search = RootSearch {
                layout,
                database: &database,
                runtime_roots: settings.runtime_roots,
                removes_stale: true,
                failed_roots: FailedRoots::Stop,
            };
            let roots = search.find_permanent()?;
            results.lock().stale_registrations = roots.stale.len();
            let temporary = hash_parts(&search.find_temporary(&mut Vec::new())?);
            if !settings.ignore_unregistered_roots {
                search.check_registered(&roots, &temporary)?;
            }
            received.state.lock().temporary.extend(temporary);
            results.lock().unreadable.clone_from(&roots.unreadable);
            let ran = run(&Collection {
                store: &self.store,
                database: &database,
                received: &received,
                roots,
                results,
            });
            results.lock().damaged_rows = database.skipped_rows();
            database.truncate_large_log();
            ran
        })
    }
}

/// A collection that holds its locks and knows its roots.
struct Collection<'a> {
    store: &'a WritableStore,
    database: &'a Database,
    received: &'a ReceivedRoots,
    roots: FoundRoots,
    results: &'a Mutex<GcResults>,
}

impl Collection<'_> {
    fn find_dead(
        &self,
        settings: &GcSettings,
        progress: &dyn Progress,
    ) -> Result<DeadPaths, StoreError> {
        let layout = &self.store.layout;
        let dead = DeadPaths::find(
            layout,
            self.database,
            settings,
            &self.roots,
            &self.temporary(),
        )?;
        self.start(&dead, progress);
        self.results.lock().circular.clone_from(&dead.circular);
        Ok(dead)
    }

    fn start(&self, dead: &DeadPaths, progress: &dyn Progress) {
        progress.unreadable(&self.roots.unreadable);
        progress.started(dead.len(), dead.nar_bytes());
    }

    /// The hash parts of the temporary roots that are known now.
    fn temporary(&self) -> HashSet<HashPart> {
        self.received.state.lock().temporary.clone()
    }

    fn delete(
        &self,
        dead: DeadPaths,
        max_freed: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<(), StoreError> {
        let remover = Remover {
            layout: &self.store.layout,
            directory: self.store.directory.as_fd(),
            roots: self.received,
            progress,
            results: self.results,
            has_skipped: AtomicBool::new(false),
        };
        let deletion = Deletion {
            database: self.database,
            remover,
            max_freed,
        };
        deletion.run(dead)
    }

    /// Removes the links in `.links` that no path uses, and after a whole collection the records of
    /// floe's dead runs.
    fn finish(&self, is_whole: bool) -> Result<(), StoreError> {
        let layout = &self.store.layout;
        let UnusedLinks {
            removed,
            bytes_saved,
            failures,
        } = remove_unused_links(&layout.links_dir())?;
        let mut results = self.results.lock();
        results.links += removed;
        results.bytes_saved_by_links = bytes_saved;
        let failures = failures
            .into_iter()
            .map(|(path, source)| DeleteFailure { path, source });
        results.failures.extend(failures);
        let has_failures = !results.failures.is_empty();
        drop(results);
        if is_whole && !has_failures {
            let recovery = Recovery {
                layout,
                database: self.database,
                // The collection has deleted the trees.
                claim: &|_, _| Err(StoreError::Interrupted),
            };
            recovery.recover_all();
        }
        Ok(())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        reserve_space(&self.store.layout);
    }
}
