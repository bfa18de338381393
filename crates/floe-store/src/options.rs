//! How a store is opened for writing: what nix.conf says of it, and how others are waited for.

use crate::locks::LockWait;
use crate::temp_roots::TempRoots;

/// Choices of whoever writes a store.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The temporary roots, which several writers may share.
    pub temp_roots: TempRoots,
    /// The group that builders belong to (`build-users-group`), by its number. The store directory
    /// of root's stores then belongs to it, as Nix wants it.
    pub build_users_group: Option<u32>,
    /// Whether the store directory may be or lie below a symbolic link (`allow-symlinked-store`).
    pub allow_symlinked_store: bool,
    /// Whether a database keeps a write-ahead log (`use-sqlite-wal`).
    pub use_sqlite_wal: bool,
    /// Whether the database is written so that a crash of the system leaves it whole
    /// (`fsync-metadata`).
    pub fsync_metadata: bool,
    /// How others are waited for.
    pub lock_wait: LockWait,
}

impl Default for WriteOptions {
    /// Nix's own defaults, but for the group: whoever has one says so.
    fn default() -> WriteOptions {
        WriteOptions {
            temp_roots: TempRoots::default(),
            build_users_group: None,
            allow_symlinked_store: false,
            use_sqlite_wal: true,
            fsync_metadata: true,
            lock_wait: LockWait::default(),
        }
    }
}
