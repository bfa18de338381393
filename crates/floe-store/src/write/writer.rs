//! A store as a target: opened or created, with the temporary roots of this process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floe_format::{HashPart, PathInfo, Realisation, SecretKey, Signature, StorePath};
use parking_lot::Mutex;

use super::derivation_checks::DerivationChecks;
use super::restart_check::{check_after_restart, sync_without_boot_id};
use crate::db::{LockedDatabase, Signing};
use crate::disk::StoreLayout;
use crate::error::StoreError;
use crate::events::StoreEvents;
use crate::locks::GcLock;
use crate::open_store::{Purpose, WritableStore};
use crate::options::WriteOptions;
use crate::query::Damage;
use crate::roots::{IndirectGcRoot, Profile, SharedTempRoots};
use crate::tree::TreeWriter;
use crate::tree::links::{TreeLinks, UnusedLinks, open_links, remove_unused_links};

/// A store opened for writing. Several threads may share it.
#[derive(Debug)]
pub struct StoreWriter {
    /// Released before the big lock of the store.
    pub(super) temp_roots: Arc<SharedTempRoots>,
    pub(crate) store: WritableStore,
    /// Opened at first use. All trees share this one descriptor.
    links: OnceLock<Arc<OwnedFd>>,
    pub(super) derivations: DerivationChecks,
    /// For trees without a row that were seen during a collection: the time of the first sight.
    unregistered_since: Mutex<HashMap<StorePath, Instant>>,
    /// Valid paths with damaged contents.
    pub(super) damaged: Mutex<BTreeMap<StorePath, Damage>>,
    /// Whether `.links` may have damaged files that no path uses any more.
    pub(super) has_suspect_links: AtomicBool,
    /// The thread that waits for the disk.
    background_sync: Mutex<Option<JoinHandle<()>>>,
    events: StoreEvents,
    /// Whether registered paths are on disk, by which settings.
    pub(super) durability: Durability,
}

impl StoreWriter {
    /// Opens a store and creates an empty one if there is none.
    ///
    /// Errors: [`StoreError::SymlinkedStore`], [`StoreError::Schema`], and those of the system and
    /// of SQLite.
    pub fn open(layout: StoreLayout) -> Result<StoreWriter, StoreError> {
        StoreWriter::open_with(layout, &WriteOptions::default())
    }

    /// Opens a store with the given options.
    ///
    /// Errors: also [`StoreError::Interrupted`] and [`StoreError::LockTimeout`].
    pub fn open_with(
        layout: StoreLayout,
        options: &WriteOptions,
    ) -> Result<StoreWriter, StoreError> {
        let store = WritableStore::open(layout, options, Purpose::AddPaths)?;
        let temp_roots = options.temp_roots.open(&store.layout)?;
        let checked = check_after_restart(&store, &options.events)?;
        let writer = StoreWriter {
            temp_roots,
            store,
            links: OnceLock::new(),
            derivations: DerivationChecks::default(),
            unregistered_since: Mutex::default(),
            damaged: Mutex::new(checked.damaged),
            has_suspect_links: AtomicBool::new(false),
            background_sync: Mutex::new(checked.background_sync),
            events: options.events.clone(),
            durability: Durability {
                fsync_store_paths: options.fsync_store_paths,
                sync_before_registering: options.sync_before_registering,
            },
        };
        let has_crashed_runs = writer.recover_crashed_runs();
        let is_suspect = checked.is_first && (has_crashed_runs || writer.has_damaged());
        writer
            .has_suspect_links
            .store(is_suspect, Ordering::Relaxed);
        Ok(writer)
    }

    /// Removes the store if this writer has created it, if it has no paths and no trees for the
    /// next run, and if no other process has it open. The writer cannot be used afterwards.
    pub fn remove_if_unused(&self) {
        self.store.remove_if_unused(&self.temp_roots_name());
    }

    /// Waits for the end of the `syncfs` that this writer has begun when it was opened, and for the
    /// record. A process that ends earlier waits for the `syncfs` as well, and loses its result.
    pub fn wait_for_background_sync(&self) {
        let thread: Option<JoinHandle<()>> = self.background_sync.lock().take();
        // The thread does not panic, and its errors only leave the record as it is.
        let _: Option<thread::Result<()>> = thread.map(JoinHandle::join);
    }

    /// The name of the file of temporary roots.
    fn temp_roots_name(&self) -> String {
        self.temp_roots.file.lock().name()
    }

    /// The directories of the store.
    pub fn layout(&self) -> &StoreLayout {
        &self.store.layout
    }

    /// Protects paths and their closures from garbage collection until all writers that share the
    /// temporary roots are dropped. Call it before the query whether the paths are valid.
    pub fn add_temp_roots<'a>(
        &self,
        paths: impl Iterator<Item = &'a StorePath> + Clone,
    ) -> Result<(), StoreError> {
        self.temp_roots
            .file
            .lock()
            .add(paths, &self.store.lock_wait)
    }

    /// Waits for the end of a collection that was running when paths were protected. Paths that are
    /// valid afterwards stay valid. Before that, an older collector may still delete a path that it
    /// has found to be garbage, unless a valid path refers to it.
    pub fn wait_for_gc(&self) -> Result<(), StoreError> {
        // Other writers add their roots meanwhile.
        let notified = self.temp_roots.file.lock().notified_gc();
        let Some(notified) = notified else {
            return Ok(());
        };
        let gc_lock = GcLock::open(self.layout())?;
        if gc_lock.wait_for_collector(&self.store.lock_wait)? {
            self.temp_roots.file.lock().forget_gc(notified);
        }
        Ok(())
    }

    /// Makes `link` a symbolic link to the logical store path and registers it as a root. Replaces
    /// an existing link atomically.
    ///
    /// Errors: those of [`IndirectGcRoot::check`], because another process may have used the place
    /// meanwhile, and those of the system.
    pub fn add_gc_root(&self, link: &IndirectGcRoot, path: &StorePath) -> Result<(), StoreError> {
        self.add_temp_roots([path].into_iter())?;
        link.register(&self.store.layout, path, &self.events)?;
        // A collector that began after the first call may have read the permanent roots before the
        // link existed. The second call makes sure that it knows the temporary root.
        self.add_temp_roots([path].into_iter())
    }

    /// Registers a symbolic link as a root, as a daemon does for its client. The client may see the
    /// link where this process does not, as in a container. Such a link keeps nothing.
    ///
    /// Errors: [`StoreError::UnusableRoot`], and those of the system.
    pub fn register_gc_root(&self, link: &Path) -> Result<(), StoreError> {
        let (root, path) = IndirectGcRoot::existing(self.layout(), link)?;
        if let Some(path) = &path {
            self.add_temp_roots([path].into_iter())?;
            if self.path_info(path)?.is_none() {
                // A collection would stop at a file without a row.
                let reason = "its path is not valid; add the path first";
                return Err(StoreError::UnusableRoot(root.path().to_path_buf(), reason));
            }
        }
        let may_be_missed = !GcLock::open(self.layout())?.is_free()?;
        root.register_link(self.layout(), path.as_ref(), (may_be_missed, &self.events))?;
        // As for a new root.
        self.add_temp_roots(path.iter())
    }

    /// Adds signatures by keys to valid paths, and returns what that did for each path.
    ///
    /// Errors: those of the database, which is unchanged then.
    pub fn sign(
        &self,
        paths: &[StorePath],
        keys: &[SecretKey],
    ) -> Result<Vec<Signing>, StoreError> {
        self.database().sign(paths, keys)
    }

    /// Adds signatures to a valid path without a check, and returns what that did.
    ///
    /// Errors: those of the database, which is unchanged then.
    pub fn add_signatures(
        &self,
        path: &StorePath,
        signatures: &BTreeSet<Signature>,
    ) -> Result<Signing, StoreError> {
        self.database().add_signatures(path, signatures)
    }

    /// Adds the signatures of other descriptions of valid paths without a check, and returns the
    /// result for each path.
    ///
    /// Errors: those of the database, which is unchanged then.
    pub fn merge_signatures(&self, infos: &[PathInfo]) -> Result<Vec<Signing>, StoreError> {
        self.database().merge_signatures(infos)
    }

    /// Makes a path the newest generation of a profile and switches to it. Returns the number of
    /// the generation. If the newest generation already is this path, no further one is made.
    ///
    /// Errors: those of [`Profile::check`], [`StoreError::LockTimeout`], and those of the system.
    pub fn set_profile(&self, profile: &Profile, path: &StorePath) -> Result<u64, StoreError> {
        self.add_temp_roots([path].into_iter())?;
        profile.set(&self.store.layout, path, &self.store.lock_wait, |root| {
            self.add_gc_root(root, path)
        })
    }

    /// Whether a collector may still remove the tree of a path that is not valid. The collector
    /// deletes the row first and the tree afterwards, without the path lock. A new tree that
    /// arrives in between would be removed as well. A tree that is still there after the grace
    /// period has another origin.
    pub(crate) fn is_being_removed(&self, path: &StorePath) -> Result<bool, StoreError> {
        if fs::symlink_metadata(self.layout().real_path(path)).is_err() {
            return Ok(false);
        }
        if GcLock::open(self.layout())?.is_free()? {
            return Ok(false);
        }
        let mut unregistered_since = self.unregistered_since.lock();
        let first_seen = unregistered_since.entry(path.clone());
        let first_seen = first_seen.or_insert_with(Instant::now);
        Ok(first_seen.elapsed() < REMOVAL_GRACE_PERIOD)
    }

    /// Returns the paths that are not valid, in the order of `paths`.
    pub fn query_missing(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, StoreError> {
        let database = self.database();
        let mut missing = Vec::new();
        for path in paths {
            if !database.is_valid(path)? {
                missing.push(path.clone());
            }
        }
        Ok(missing)
    }

    /// Registers realisations of valid paths, dependencies first, without a check of signatures.
    ///
    /// Errors: those of the database, which is unchanged then; [`StoreError::Realisation`].
    pub fn register_realisations(&self, realisations: &[Realisation]) -> Result<(), StoreError> {
        self.database().register_realisations(realisations)
    }

    /// Returns the registered information about a path, or `None` if the path is not valid.
    pub fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        self.database().path_info(path)
    }

    /// Returns the references of a path, or `None` if the path is not valid. The other columns of
    /// its row need not parse.
    pub fn references(&self, path: &StorePath) -> Result<Option<Vec<StorePath>>, StoreError> {
        self.database().references(path)
    }

    /// Returns the valid path with this hash part.
    pub fn query_path_from_hash_part(
        &self,
        hash_part: HashPart,
    ) -> Result<Option<StorePath>, StoreError> {
        self.database().query_path_from_hash_part(hash_part)
    }

    /// Returns the number of paths in the closure of some valid paths.
    pub fn closure_len(&self, roots: &[StorePath]) -> Result<u64, StoreError> {
        Ok(self.database().closure_paths(roots)?.len() as u64)
    }

    /// Returns a writer that unpacks a path beside its final place. The path must be protected.
    pub fn tree_writer(&self, path: &StorePath) -> TreeWriter {
        let number = SERIAL.fetch_add(1, Ordering::Relaxed);
        TreeWriter::new(
            self.store.directory.clone(),
            &self.layout().real_store_dir,
            path,
            &self.temp_roots_name(),
            number,
        )
    }

    /// Returns a tree writer that replaces equal files by hard links through `.links`, as
    /// `nix-store --optimise` does.
    pub fn optimising_tree_writer(&self, path: &StorePath) -> Result<TreeWriter, StoreError> {
        let links = match self.links.get() {
            Some(links) => links,
            None => {
                let links = open_links(&self.layout().links_dir())?;
                // Another thread may have opened the directory meanwhile. Its descriptor is as
                // good.
                self.links.get_or_init(|| links)
            }
        };
        Ok(self
            .tree_writer(path)
            .with_optimise(TreeLinks::new(links.clone())))
    }

    pub(crate) fn database(&self) -> LockedDatabase<'_> {
        self.store.database()
    }
}

/// Distinguishes the trees of one process: several writers may share one file of temporary roots,
/// whose name is a part of their names.
static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Drop for StoreWriter {
    fn drop(&mut self) {
        if self.has_suspect_links.load(Ordering::Relaxed) {
            // After a failure, the next collection removes the links.
            let _: Result<UnusedLinks, StoreError> =
                remove_unused_links(&self.layout().links_dir());
        }
        // After a failure, the next writer hashes the paths of this one.
        let _: Result<(), StoreError> = sync_without_boot_id(&self.store);
    }
}

/// The settings after which a registered path survives a crash of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Durability {
    pub(super) fsync_store_paths: bool,
    pub(super) sync_before_registering: bool,
}

/// The longest time between a collector's deletion of a row and the removal of its tree.
const REMOVAL_GRACE_PERIOD: Duration = Duration::from_secs(10);
