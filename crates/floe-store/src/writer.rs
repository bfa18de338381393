//! A store as a target: opened or created, with this process's roots in it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use floe_format::derivation::DerivationHashCache;
use floe_format::{PathInfo, StorePath};
use rustix::fs::{Access, FallocateFlags, access};

use crate::crash_recovery;
use crate::db::{Database, LockedDatabase};
use crate::error::{IoContext, StoreError};
use crate::layout::StoreLayout;
use crate::locks::{GcLock, LockWait, lock_shared, open_lock_file};
use crate::options::WriteOptions;
use crate::temp_roots::SharedTempRoots;
use crate::tree::links::LinksDir;
use crate::tree::{TemporaryTree, TreeWriter};

/// A store that may be written. May be shared between threads.
#[derive(Debug)]
pub struct StoreWriter {
    layout: StoreLayout,
    directory: Arc<OwnedFd>,
    database: Mutex<Database>,
    temp_roots: Arc<SharedTempRoots>,
    serial: AtomicU64,
    /// Opened when it is needed: one descriptor, however many trees wait for their registration.
    links: OnceLock<LinksDir>,
    /// What is known of derivations that were registered, so that each is read once.
    pub(crate) modulo_cache: Mutex<DerivationHashCache>,
    lock_wait: LockWait,
    /// Since when trees without a row were seen while a collector was at work.
    unregistered_since: Mutex<HashMap<StorePath, Instant>>,
    /// Held shared for as long as the store is open, so that nobody migrates the database.
    _big_lock: File,
}

impl StoreWriter {
    /// Opens a store; makes an empty one where there is none.
    ///
    /// Errors: [`StoreError::SymlinkedStore`], [`StoreError::Schema`], or what the system and
    /// SQLite say.
    pub fn open(layout: StoreLayout) -> Result<StoreWriter, StoreError> {
        StoreWriter::open_with(layout, &WriteOptions::default())
    }

    /// The same, with choices of one's own.
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
        create_directories(&layout)?;
        refuse_unwritable(&layout.real_store_dir)?;
        if let Some(group) = options.build_users_group {
            chown_to_build_users_group(&layout.real_store_dir, group)?;
        }
        reserve_space(&layout.database_dir().join("reserved"));
        let big_lock_path = layout.database_dir().join("big-lock");
        let big_lock = open_lock_file(&big_lock_path)?;
        let (path, lock_wait) = (&big_lock_path, &options.lock_wait);
        lock_shared(&big_lock, path, "the big lock of the store", lock_wait)?;
        let scope = lock_wait.enter_scope();
        let database = Database::open_writable(&layout, options)?;
        drop(scope);
        let directory =
            File::open(&layout.real_store_dir).io_context("opening", &layout.real_store_dir)?;
        let temp_roots = options.temp_roots.open(&layout)?;
        let writer = StoreWriter {
            directory: Arc::new(directory.into()),
            database: Mutex::new(database),
            temp_roots,
            serial: AtomicU64::new(0),
            links: OnceLock::new(),
            modulo_cache: Mutex::default(),
            lock_wait: options.lock_wait.clone(),
            unregistered_since: Mutex::default(),
            _big_lock: big_lock,
            layout,
        };
        writer.recover_crashed_runs();
        Ok(writer)
    }

    /// Clears up after runs that were killed.
    pub(crate) fn recover_crashed_runs(&self) {
        crash_recovery::recover(&self.layout, &self.database(), &|path, place| {
            self.claim(path, place)
        });
    }

    /// Takes over a sealed tree of a killed run.
    fn claim(&self, path: &StorePath, place: PathBuf) -> Result<(), StoreError> {
        // The root comes first: if this run is killed too, the next one needs it to know to which
        // path the tree belongs.
        self.temp_roots.lock().append(path)?;
        let mut tree = self.tree_writer(path).into_empty_tree();
        tree.rename_from(&place).io_context("renaming", &place)?;
        self.temp_roots.recovered.insert(tree);
        Ok(())
    }

    /// Whether a run that ended early has left a tree for that path, whole or not.
    pub fn has_recovered(&self, path: &StorePath) -> bool {
        self.temp_roots.recovered.contains(path)
    }

    /// One of these trees, with nothing known of its contents. It is removed when it is dropped.
    pub fn take_recovered(&self, path: &StorePath) -> Option<TemporaryTree> {
        self.temp_roots.recovered.pop(path)
    }

    /// Leaves sealed trees to the next writer, which finds them as it finds what a killed run has
    /// left. They are garbage to every collector once nobody has these temporary roots.
    pub fn keep_for_resume(&self, trees: impl IntoIterator<Item = TemporaryTree>) {
        let recovered = &self.temp_roots.recovered;
        trees.into_iter().for_each(|tree| recovered.insert(tree));
    }

    /// Removes those that nobody has taken and nobody wants. What other writers want that are at
    /// work with the same temporary roots is not known here; then all stay.
    pub fn discard_recovered(&self, is_wanted: impl Fn(&StorePath) -> bool) {
        if Arc::strong_count(&self.temp_roots) == 1 {
            self.temp_roots.recovered.remove_unless(is_wanted);
        }
    }

    /// Where the store's parts are.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// Keeps paths, and all that they refer to, from being collected until this writer is
    /// dropped, and all others that share its roots. To be called before the question whether they
    /// are valid.
    pub fn add_temp_roots<'a>(
        &self,
        paths: impl Iterator<Item = &'a StorePath> + Clone,
    ) -> Result<(), StoreError> {
        self.temp_roots.lock().add(paths, &self.lock_wait)
    }

    /// Waits for the end of a collector that was running when paths were protected. Those that are
    /// valid then stay so; before, an older collector may still delete what it had found to be
    /// garbage, unless it is what another valid path refers to.
    pub fn wait_for_gc(&self) -> Result<(), StoreError> {
        self.temp_roots.lock().wait_for_gc(&self.lock_wait)
    }

    /// Whether a collector may be about to remove what lies at the place of a path that is not
    /// valid: it deletes the row first and the tree afterwards, without the path's lock, and what
    /// comes into that place meanwhile goes with it. What still lies there after some seconds has
    /// another history.
    pub(crate) fn is_being_removed(&self, path: &StorePath) -> Result<bool, StoreError> {
        if fs::symlink_metadata(self.layout.real_path(path)).is_err() {
            return Ok(false);
        }
        if GcLock::open(&self.layout)?.is_free()? {
            return Ok(false);
        }
        let mut unregistered_since = self
            .unregistered_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let first_seen = unregistered_since
            .entry(path.clone())
            .or_insert_with(Instant::now);
        Ok(first_seen.elapsed() < REMOVAL_GRACE_PERIOD)
    }

    pub(crate) fn lock_wait(&self) -> &LockWait {
        &self.lock_wait
    }

    /// Those of `paths` that are not valid, in their order.
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

    /// What the database knows of a path; `None` if it is not valid.
    pub fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        self.database().path_info(path)
    }

    /// The valid path with that hash part.
    pub fn query_path_from_hash_part(
        &self,
        hash_part: &str,
    ) -> Result<Option<StorePath>, StoreError> {
        self.database().query_path_from_hash_part(hash_part)
    }

    /// How many paths the closure of some valid paths has.
    pub fn closure_len(&self, roots: &[StorePath]) -> Result<u64, StoreError> {
        Ok(self.database().closure(roots)?.len() as u64)
    }

    /// Begins to unpack a path beside its place. The path must be protected.
    pub fn tree_writer(&self, path: &StorePath) -> TreeWriter {
        let number = self.serial.fetch_add(1, Ordering::Relaxed);
        TreeWriter::new(
            self.directory.clone(),
            &self.layout.real_store_dir,
            path,
            &self.temp_roots.lock().name(),
            number,
        )
    }

    /// The same for a tree whose files are to be one with equal files of the store, by links in
    /// `.links` as `nix-store --optimise` makes them.
    pub fn optimising_tree_writer(&self, path: &StorePath) -> Result<TreeWriter, StoreError> {
        let links = match self.links.get() {
            Some(links) => links,
            None => {
                let directory = self.layout.links_dir();
                let links = LinksDir::open(&directory).io_context("opening", &directory)?;
                // Another thread may have been faster, and its descriptor is as good.
                self.links.get_or_init(|| links)
            }
        };
        Ok(self.tree_writer(path).with_optimise(links.clone()))
    }

    pub(crate) fn database(&self) -> LockedDatabase<'_> {
        LockedDatabase::lock(&self.database, &self.lock_wait)
    }
}

/// Makes the directories that Nix makes, with the modes that it gives them under its own umask.
fn create_directories(layout: &StoreLayout) -> Result<(), StoreError> {
    create_directory(&layout.real_store_dir)?;
    create_directory(&layout.links_dir())?;
    for name in ["profiles/per-user", "gcroots/per-user", "temproots", "db"] {
        create_directory(&layout.state_dir.join(name))?;
    }
    Ok(())
}

/// Nix lets builders, who are other users, make paths in the store directory, and nobody remove
/// those of others. Only root can give a directory away.
fn chown_to_build_users_group(store: &Path, group: u32) -> Result<(), StoreError> {
    let found = fs::metadata(store).io_context("examining", store)?;
    let is_given = (found.uid(), found.gid()) == (0, group);
    if !rustix::process::geteuid().is_root() || is_given && found.mode() & 0o7777 == STORE_MODE {
        return Ok(());
    }
    chown(store, Some(0), Some(group)).io_context("changing the owner of", store)?;
    fs::set_permissions(store, fs::Permissions::from_mode(STORE_MODE))
        .io_context("changing the mode of", store)
}

/// Makes a directory and its parents, each 0755 whatever the umask.
pub(crate) fn create_directory(path: &Path) -> Result<(), StoreError> {
    match create_one_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let Some(parent) = path.parent() else {
                return Err(error).io_context("creating the directory", path);
            };
            create_directory(parent)?;
            // Once more and no further: where a parent can be made and this cannot, it is so.
            create_one_directory(path).io_context("creating the directory", path)
        }
        made => made.io_context("creating the directory", path),
    }
}

/// Makes one directory, or finds it there.
fn create_one_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Where a daemon serves a store that this user may not write, the daemon is the only way in.
fn refuse_daemon_owned(layout: &StoreLayout) -> Result<(), StoreError> {
    let may_write = access(&layout.state_dir, Access::READ_OK | Access::WRITE_OK).is_ok();
    if !may_write && layout.state_dir.join("daemon-socket/socket").exists() {
        return Err(StoreError::DaemonOwned {
            path: layout.state_dir.clone(),
        });
    }
    Ok(())
}

/// Where nothing can be written, nothing needs to be fetched first.
fn refuse_unwritable(store: &Path) -> Result<(), StoreError> {
    access(store, Access::WRITE_OK | Access::EXEC_OK).io_context("writing to", store)
}

/// Nix refuses a store that is, or lies below, a symbolic link, unless it is told not to.
fn refuse_symlinks(store: &Path) -> Result<(), StoreError> {
    let absolute = std::path::absolute(store).io_context("resolving", store)?;
    for path in absolute.ancestors() {
        if path.is_symlink() {
            return Err(StoreError::SymlinkedStore {
                path: path.to_path_buf(),
            });
        }
    }
    Ok(())
}

/// A file that Nix's collector deletes when the disk is so full that SQLite could not work.
/// As in Nix, a failure to make it is no failure.
fn reserve_space(path: &Path) {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() == RESERVED_LEN) {
        return;
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path);
    if let Ok(file) = file {
        let _: Result<(), rustix::io::Errno> =
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVED_LEN);
    }
}

/// How long a collector may take between the deletion of a row and that of the tree.
const REMOVAL_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// The mode of a store directory that builders write to.
const STORE_MODE: u32 = 0o1775;

/// Nix's default for `gc-reserved-space`.
const RESERVED_LEN: u64 = 8 * 1024 * 1024;
