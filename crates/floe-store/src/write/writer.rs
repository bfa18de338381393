//! A store as a target: opened or created, with the temporary roots of this process.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floe_format::derivation::DerivationHashCache;
use floe_format::{HashPart, PathInfo, StorePath};
use parking_lot::Mutex;
use rustix::fs::{
    Access, CWD, FallocateFlags, Gid, Mode, OFlags, Uid, access, fchmod, fchown, fstat, openat,
};
use rustix::io::Errno;

use crate::db::{Database, LockedDatabase, MissingTables};
use crate::disk::StoreLayout;
use crate::error::{IoContext, StoreError};
use crate::events::StoreEvents;
use crate::locks::{GcLock, LockWait, open_lock_file};
use crate::new_store::{NewStore, create_directories, lock_store};
use crate::options::WriteOptions;
use crate::query::Damage;
use crate::roots::{IndirectGcRoot, Profile, SharedTempRoots};
use crate::tree::TreeWriter;
use crate::tree::links::{TreeLinks, UnusedLinks, open_links, remove_unused_links};

/// A store opened for writing. Several threads may share it.
#[derive(Debug)]
pub struct StoreWriter {
    pub(crate) layout: StoreLayout,
    pub(crate) directory: Arc<OwnedFd>,
    database: Mutex<Database>,
    pub(crate) temp_roots: Arc<SharedTempRoots>,
    /// Opened at first use. All trees share this one descriptor.
    links: OnceLock<Arc<OwnedFd>>,
    /// Hashes of registered derivations, so that each derivation is read once.
    pub(crate) modulo_cache: Mutex<DerivationHashCache>,
    pub(crate) lock_wait: LockWait,
    /// For trees without a row that were seen during a collection: the time of the first sight.
    unregistered_since: Mutex<HashMap<StorePath, Instant>>,
    /// Valid paths with damaged contents.
    pub(crate) damaged: Mutex<BTreeMap<StorePath, Damage>>,
    /// Whether this is the first writer after a restart of the system.
    pub(crate) is_after_restart: bool,
    /// Whether `.links` may have damaged files that no path uses any more.
    pub(crate) has_suspect_links: AtomicBool,
    /// The thread that waits for the disk.
    pub(crate) background_sync: Mutex<Option<JoinHandle<()>>>,
    pub(crate) events: StoreEvents,
    /// Whether registered paths are on disk, by which settings.
    pub(crate) durability: Durability,
    /// Held shared while the store is open, so that no process migrates the database.
    big_lock: File,
    /// The directories that this writer has created, parents first.
    created: Vec<PathBuf>,
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
        if !options.allow_symlinked_store {
            refuse_symlinks(&layout.real_store_dir)?;
        }
        refuse_daemon_owned(&layout)?;
        let mut created = create_directories(&layout)?;
        // A store that this user may not write fails before the first download.
        let store = &layout.real_store_dir;
        access(store, Access::WRITE_OK | Access::EXEC_OK).io_context("write to", store)?;
        let lock_wait = &options.lock_wait;
        let big_lock = lock_store(&layout, lock_wait, &mut created)?;
        // Until then, another process may have removed the store and created it again.
        let directory = open_store_directory(store, options.allow_symlinked_store)?;
        if let Some(group) = options.build_users_group {
            chown_to_build_users_group(&directory, group).io_context("give away", store)?;
        }
        reserve_space(&layout.database_dir().join("reserved"));
        let scope = lock_wait.enter_scope();
        let database = Database::open_writable(&layout, &options.database(MissingTables::Create))?;
        drop(scope);
        let temp_roots = options.temp_roots.open(&layout)?;
        let mut writer = StoreWriter {
            directory: Arc::new(directory),
            database: Mutex::new(database),
            temp_roots,
            links: OnceLock::new(),
            modulo_cache: Mutex::default(),
            lock_wait: options.lock_wait.clone(),
            unregistered_since: Mutex::default(),
            damaged: Mutex::default(),
            is_after_restart: false,
            has_suspect_links: AtomicBool::new(false),
            background_sync: Mutex::default(),
            events: options.events.clone(),
            durability: Durability {
                fsync_store_paths: options.fsync_store_paths,
                sync_before_registering: options.sync_before_registering,
            },
            big_lock,
            created,
            layout,
        };
        writer.check_after_restart()?;
        let has_crashed_runs = writer.recover_crashed_runs();
        let is_suspect = writer.is_after_restart && (has_crashed_runs || writer.has_damaged());
        writer
            .has_suspect_links
            .store(is_suspect, Ordering::Relaxed);
        Ok(writer)
    }

    /// Removes the store if this writer has created it, if it has no paths and no trees for the
    /// next run, and if no other process has it open. The writer cannot be used afterwards.
    pub fn remove_if_unused(&self) {
        let store = NewStore {
            layout: &self.layout,
            big_lock: &self.big_lock,
            created: &self.created,
            temp_roots: self.temp_roots_name(),
        };
        store.remove_if(|| self.database().last_row().is_ok_and(|row| row == 0));
    }

    /// The name of the file of temporary roots.
    fn temp_roots_name(&self) -> String {
        self.temp_roots.file.lock().name()
    }

    /// The directories of the store.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// Protects paths and their closures from garbage collection until all writers that share the
    /// temporary roots are dropped. Call it before the query whether the paths are valid.
    pub fn add_temp_roots<'a>(
        &self,
        paths: impl Iterator<Item = &'a StorePath> + Clone,
    ) -> Result<(), StoreError> {
        self.temp_roots.file.lock().add(paths, &self.lock_wait)
    }

    /// Waits for the end of a collection that was running when paths were protected. Paths that are
    /// valid afterwards stay valid. Before that, an older collector may still delete a path that it
    /// has found to be garbage, unless a valid path refers to it.
    pub fn wait_for_gc(&self) -> Result<(), StoreError> {
        self.temp_roots.file.lock().wait_for_gc(&self.lock_wait)
    }

    /// Makes `link` a symbolic link to the logical store path and registers it as a root. Replaces
    /// an existing link atomically.
    ///
    /// Errors: those of [`IndirectGcRoot::check`], because another process may have used the place
    /// meanwhile, and those of the system.
    pub fn add_gc_root(&self, link: &IndirectGcRoot, path: &StorePath) -> Result<(), StoreError> {
        self.add_temp_roots([path].into_iter())?;
        link.register(&self.layout, path, &self.events)?;
        // A collector that began after the first call may have read the permanent roots before the
        // link existed. The second call makes sure that it knows the temporary root.
        self.add_temp_roots([path].into_iter())
    }

    /// Makes a path the newest generation of a profile and switches to it. Returns the number of
    /// the generation. If the newest generation already is this path, no further one is made.
    ///
    /// Errors: those of [`Profile::check`], [`StoreError::LockTimeout`], and those of the system.
    pub fn set_profile(&self, profile: &Profile, path: &StorePath) -> Result<u64, StoreError> {
        self.add_temp_roots([path].into_iter())?;
        profile.set(&self.layout, path, &self.lock_wait, |root| {
            self.add_gc_root(root, path)
        })
    }

    /// Whether a collector may still remove the tree of a path that is not valid. The collector
    /// deletes the row first and the tree afterwards, without the path lock. A new tree that
    /// arrives in between would be removed as well. A tree that is still there after the grace
    /// period has another origin.
    pub(crate) fn is_being_removed(&self, path: &StorePath) -> Result<bool, StoreError> {
        if fs::symlink_metadata(self.layout.real_path(path)).is_err() {
            return Ok(false);
        }
        if GcLock::open(&self.layout)?.is_free()? {
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
            self.directory.clone(),
            &self.layout.real_store_dir,
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
                let links = open_links(&self.layout.links_dir())?;
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
        LockedDatabase::lock(&self.database, &self.lock_wait)
    }
}

/// Distinguishes the trees of one process: several writers may share one file of temporary roots,
/// whose name is a part of their names.
static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Drop for StoreWriter {
    fn drop(&mut self) {
        if self.has_suspect_links.load(Ordering::Relaxed) {
            // After a failure, the next collection removes the links.
            let _: Result<UnusedLinks, StoreError> = remove_unused_links(&self.layout.links_dir());
        }
        // After a failure, the next writer hashes the paths of this one.
        let _: Result<(), StoreError> = self.sync_without_boot_id();
    }
}

/// The settings after which a registered path survives a crash of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durability {
    pub(crate) fsync_store_paths: bool,
    pub(crate) sync_before_registering: bool,
}

/// Gives the store directory to the group of builders, with the sticky bit: builders may create
/// paths and may not remove paths of other users, as in Nix. Only root can change the group.
fn chown_to_build_users_group(store: &OwnedFd, group: u32) -> Result<(), Errno> {
    let found = fstat(store)?;
    let is_given = (found.st_uid, found.st_gid) == (0, group);
    let is_shared = is_given && found.st_mode & 0o7777 == STORE_MODE;
    if !rustix::process::geteuid().is_root() || is_shared {
        return Ok(());
    }
    fchown(store, Some(Uid::ROOT), Some(Gid::from_raw(group)))?;
    fchmod(store, Mode::from_raw_mode(STORE_MODE))
}

/// Opens the store directory once, so that all changes concern the directory that was checked.
pub(crate) fn open_store_directory(
    store: &Path,
    allow_symlink: bool,
) -> Result<OwnedFd, StoreError> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !allow_symlink);
    openat(CWD, store, flags, Mode::empty()).io_context("open", store)
}

/// Refuses a store that this user may not write and that belongs to a Nix daemon.
pub(crate) fn refuse_daemon_owned(layout: &StoreLayout) -> Result<(), StoreError> {
    let may_write = access(&layout.state_dir, Access::READ_OK | Access::WRITE_OK).is_ok();
    if !may_write && layout.state_dir.join("daemon-socket/socket").exists() {
        return Err(StoreError::DaemonOwned(layout.state_dir.clone()));
    }
    Ok(())
}

/// Refuses a store that is or lies below a symbolic link, as Nix does unless a setting allows it.
pub(crate) fn refuse_symlinks(store: &Path) -> Result<(), StoreError> {
    let absolute = std::path::absolute(store).io_context("resolve", store)?;
    match absolute.ancestors().find(|path| path.is_symlink()) {
        Some(link) => Err(StoreError::SymlinkedStore(link.to_path_buf())),
        None => Ok(()),
    }
}

/// Creates the file that Nix's collector deletes when the disk is full, so that SQLite can work. As
/// in Nix, a failure is ignored.
pub(crate) fn reserve_space(path: &Path) {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() == RESERVED_LEN) {
        return;
    }
    if let Ok(file) = open_lock_file(path) {
        let _: Result<(), rustix::io::Errno> =
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVED_LEN);
    }
}

/// The longest time between a collector's deletion of a row and the removal of its tree.
const REMOVAL_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// The mode of a store directory that builders write to.
const STORE_MODE: u32 = 0o1775;

/// Nix's default for `gc-reserved-space`.
const RESERVED_LEN: u64 = 8 * 1024 * 1024;
