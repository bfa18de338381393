//! Options for opening a store for writing: settings of nix.conf, the way to wait for locks, and
//! the receiver of events.

use crate::db::{DatabaseOptions, MissingTables};
use crate::events::StoreEvents;
use crate::locks::LockWait;
use crate::roots::TempRoots;

/// The options of a store writer.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The temporary roots, which several writers may share.
    pub temp_roots: TempRoots,
    /// The number of the group of builders (`build-users-group`). If it is set, root's stores give
    /// their store directory to this group, as in Nix.
    pub build_users_group: Option<u32>,
    /// Whether the store directory or one of its parents may be a symbolic link
    /// (`allow-symlinked-store`).
    pub allow_symlinked_store: bool,
    /// Whether a new database keeps a write-ahead log (`use-sqlite-wal`).
    pub use_sqlite_wal: bool,
    /// Whether the database survives a crash of the system (`fsync-metadata`).
    pub fsync_metadata: bool,
    /// Whether the files of a path reach the disk before the path is registered
    /// (`fsync-store-paths`).
    pub fsync_store_paths: bool,
    /// Whether the whole file system reaches the disk before paths are registered
    /// (`sync-before-registering`).
    pub sync_before_registering: bool,
    /// How to wait for locks of other processes.
    pub lock_wait: LockWait,
    /// The receiver of the store's events.
    pub events: StoreEvents,
}

impl Default for WriteOptions {
    /// Nix's defaults. The group has none here, because its number depends on the system.
    fn default() -> WriteOptions {
        WriteOptions {
            temp_roots: TempRoots::default(),
            build_users_group: None,
            allow_symlinked_store: false,
            use_sqlite_wal: true,
            fsync_metadata: true,
            fsync_store_paths: false,
            sync_before_registering: false,
            lock_wait: LockWait::default(),
            events: StoreEvents::default(),
        }
    }
}

impl WriteOptions {
    /// The options that concern the database.
    pub(crate) fn database(&self, missing: MissingTables) -> DatabaseOptions {
        DatabaseOptions {
            use_wal: self.use_sqlite_wal,
            fsync: self.fsync_metadata,
            missing,
            events: self.events.clone(),
        }
    }
}
