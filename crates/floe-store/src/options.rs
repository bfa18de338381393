//! Options for opening a store for writing: settings of nix.conf, the way to wait for locks, and
//! the receiver of events.

use std::fmt;
use std::sync::Arc;

use crate::locks::LockWait;
use crate::sync_record::LostRecord;
use crate::temp_roots::TempRoots;

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

/// An event of a store that is opened for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// The system was restarted. The writer hashes paths whose files may not have reached the disk.
    CheckingPaths {
        /// The number of paths.
        paths: usize,
    },
    /// The database had no tables, and floe has made them. The rows of paths are lost.
    LostRows {
        /// The number of trees in the store directory that have no row now.
        trees: usize,
    },
    /// The record of paths whose files may not have reached the disk is lost. Paths that a crash
    /// of the system has damaged before stay unnoticed.
    LostSyncRecord {
        /// The defect.
        reason: LostRecord,
    },
    /// The record of a new root could not be written. While the file system of the root is not
    /// mounted, a collection deletes the closure of the root.
    RootNotRecorded {
        /// The message of the error.
        error: String,
    },
}

/// The receiver of [`StoreEvent`]s. The default drops them.
#[derive(Clone, Default)]
pub struct StoreEvents(Option<Arc<dyn Fn(StoreEvent) + Send + Sync>>);

impl StoreEvents {
    /// Sends the events to `receiver`.
    pub fn new(receiver: impl Fn(StoreEvent) + Send + Sync + 'static) -> StoreEvents {
        StoreEvents(Some(Arc::new(receiver)))
    }

    pub(crate) fn send(&self, event: StoreEvent) {
        if let Some(receiver) = &self.0 {
            receiver(event);
        }
    }
}

impl fmt::Debug for StoreEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreEvents").finish_non_exhaustive()
    }
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
