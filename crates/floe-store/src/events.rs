//! The events of an open store, which a program reports to its user.

use std::fmt;
use std::sync::Arc;

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

/// The reason why a store that had a record has none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostRecord {
    /// The file is gone.
    Deleted,
    /// The record names rows that the database does not have: one of both was replaced.
    BeyondDatabase,
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
