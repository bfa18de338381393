//! An open store: the state that readers, writers and collectors share.
//!
//! Opening for changes takes locks in this order:
//!
//! 1. The big lock, shared; exclusive for a moment to remove a lock directory without an owner.
//! 2. The locks of the database.
//! 3. A writer (`write/writer`): its file of temporary roots, exclusive.
//! 4. The first writer since a restart (`write/restart_check`): the lock of the sync record, while
//!    it writes the record.
//! 5. A writer (`write/crash_recovery`): files of temporary roots of dead runs, exclusive and
//!    without waiting, and below each of them the path locks of its paths.
//!
//! Opening takes no `gc.lock`. A collector takes it afterwards.

mod new_store;

use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{
    Access, CWD, FallocateFlags, Gid, Mode, OFlags, Uid, access, fchmod, fchown, fstat, openat,
};
use rustix::io::Errno;

use crate::db::{BusyPolicy, Database, LockedDatabase, MissingTables, has_no_trees};
use crate::disk::{Directory, StoreLayout};
use crate::error::{IoContext as _, StoreError};
use crate::locks::{LockWait, open_lock_file};
use crate::options::WriteOptions;
pub(crate) use new_store::create_directories;
use new_store::lock_store;

/// A store with its open database. Several threads may share it.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) layout: StoreLayout,
    pub(crate) lock_wait: LockWait,
    database: Mutex<Database>,
}

impl OpenStore {
    /// Opens an existing store for reading. Queries wait for a locked database as `lock_wait` says.
    pub(crate) fn for_reading(
        layout: StoreLayout,
        lock_wait: LockWait,
    ) -> Result<OpenStore, StoreError> {
        let scope = lock_wait.enter_scope();
        let database = match Database::open_for_reading(&layout, BusyPolicy::CurrentScope) {
            // A power cut during the creation of the store leaves a database like this. A store
            // with trees has lost its rows.
            Err(StoreError::NoTables { .. }) if has_no_trees(&layout) => Database::empty(&layout)?,
            opened => opened?.0,
        };
        drop(scope);
        Ok(OpenStore {
            layout,
            lock_wait,
            database: Mutex::new(database),
        })
    }

    /// Locks the database for the current thread.
    pub(crate) fn database(&self) -> LockedDatabase<'_> {
        LockedDatabase::lock(&self.database, &self.lock_wait)
    }
}

/// A store that is open for changes.
#[derive(Debug)]
pub(crate) struct WritableStore {
    store: OpenStore,
    /// The store directory. All changes concern the directory that was checked.
    pub(crate) directory: Arc<OwnedFd>,
    /// Held shared while the store is open, so that no process migrates the database.
    big_lock: File,
    /// The directories that this process has created, parents first.
    created: Vec<PathBuf>,
}

/// The purpose of a store that is open for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To add paths. An empty store is created if there is none.
    AddPaths,
    /// To collect garbage, perhaps on a full disk. The store must exist.
    Collect,
}

impl WritableStore {
    pub(crate) fn open(
        layout: StoreLayout,
        options: &WriteOptions,
        purpose: Purpose,
    ) -> Result<WritableStore, StoreError> {
        if purpose == Purpose::Collect {
            refuse_missing(&layout)?;
        }
        if !options.allow_symlinked_store {
            refuse_symlinks(&layout.real_store_dir)?;
        }
        refuse_daemon_owned(&layout)?;
        let mut created = match purpose {
            Purpose::AddPaths => create_directories(&layout)?,
            Purpose::Collect => Vec::new(),
        };
        // A copy fails before its first download, and a collection before it deletes the rows of
        // paths whose files would stay.
        let store = &layout.real_store_dir;
        access(store, Access::WRITE_OK | Access::EXEC_OK).io_context("write to", store)?;
        let lock_wait = options.lock_wait.clone();
        let big_lock = lock_store(&layout, &lock_wait, &mut created)?;
        // Until then, another process may have removed the store and created it again.
        let directory = open_store_directory(store, options.allow_symlinked_store)?;
        match purpose {
            Purpose::AddPaths => {
                if let Some(group) = options.build_users_group {
                    chown_to_build_users_group(&directory, group).io_context("give away", store)?;
                }
                reserve_space(&layout);
            }
            // On a full disk, opening the database may need the space.
            Purpose::Collect => remove_reserved(&layout)?,
        }
        let scope = lock_wait.enter_scope();
        let database = open_database(&layout, options, purpose)?;
        drop(scope);
        Ok(WritableStore {
            store: OpenStore {
                layout,
                lock_wait,
                database: Mutex::new(database),
            },
            directory: Arc::new(directory),
            big_lock,
            created,
        })
    }
}

impl Deref for WritableStore {
    type Target = OpenStore;

    fn deref(&self) -> &OpenStore {
        &self.store
    }
}

fn open_database(
    layout: &StoreLayout,
    options: &WriteOptions,
    purpose: Purpose,
) -> Result<Database, StoreError> {
    if purpose == Purpose::AddPaths {
        return Database::open_writable(layout, &options.database(MissingTables::Create));
    }
    let database = Database::open_writable(layout, &options.database(MissingTables::Refuse));
    let database = database.map_err(|error| error.into_no_space_to_collect(None))?;
    if options.fsync_metadata {
        database.sync_each_commit()?;
    }
    Ok(database)
}

/// Refuses a store without a database.
fn refuse_missing(layout: &StoreLayout) -> Result<(), StoreError> {
    let database = layout.database_dir().join("db.sqlite");
    if database.exists() || layout.database_dir().join("schema").exists() {
        return Ok(());
    }
    Err(StoreError::NoStore {
        path: layout.real_store_dir.clone(),
        database,
    })
}

/// Refuses a store that is or lies below a symbolic link, as Nix does unless a setting allows it.
pub(crate) fn refuse_symlinks(store: &Path) -> Result<(), StoreError> {
    let absolute = std::path::absolute(store).io_context("resolve", store)?;
    match absolute.ancestors().find(|path| path.is_symlink()) {
        Some(link) => Err(StoreError::SymlinkedStore(link.to_path_buf())),
        None => Ok(()),
    }
}

/// Refuses a store that this user may not write and that belongs to a Nix daemon.
fn refuse_daemon_owned(layout: &StoreLayout) -> Result<(), StoreError> {
    let may_write = access(&layout.state_dir, Access::READ_OK | Access::WRITE_OK).is_ok();
    if !may_write && layout.state_dir.join("daemon-socket/socket").exists() {
        return Err(StoreError::DaemonOwned(layout.state_dir.clone()));
    }
    Ok(())
}

/// Opens the store directory once, so that all changes concern the directory that was checked.
fn open_store_directory(store: &Path, allow_symlink: bool) -> Result<OwnedFd, StoreError> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !allow_symlink);
    openat(CWD, store, flags, Mode::empty()).io_context("open", store)
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

/// Creates the file that Nix's collector deletes when the disk is full, so that SQLite can work. As
/// in Nix, a failure is ignored.
pub(crate) fn reserve_space(layout: &StoreLayout) {
    let path = layout.database_dir().join(RESERVED);
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == RESERVED_LEN) {
        return;
    }
    if let Ok(file) = open_lock_file(&path) {
        let _: Result<(), Errno> =
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVED_LEN);
    }
}

/// Removes the file that keeps space for a collection on a full disk.
pub(crate) fn remove_reserved(layout: &StoreLayout) -> Result<(), StoreError> {
    let directory = Directory::open(&layout.database_dir())?;
    let reserved = directory.entry(RESERVED.as_ref());
    match reserved.remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).io_context("remove", reserved.path())
        }
        _ => Ok(()),
    }
}

/// Nix's name, in the directory of the database.
const RESERVED: &str = "reserved";

/// Nix's default for `gc-reserved-space`.
const RESERVED_LEN: u64 = 8 * 1024 * 1024;

/// The mode of a store directory that builders write to.
const STORE_MODE: u32 = 0o1775;
