//! The kinds of errors, from which exit codes and error codes follow.

use floe_store::StoreError;

/// The meaning of an error for the caller, the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// Something failed.
    Failed,
    /// The request is invalid.
    Usage,
    /// A source cannot be read: the network or a server failed, or a cache or store is not there.
    Network,
    /// Data is corrupt, or no trusted key has signed it.
    Untrusted,
    /// The disk is full.
    NoSpace,
    /// The copy was cancelled.
    Interrupted,
}

impl ErrorKind {
    /// Returns the kind of an error of a local store.
    pub fn of_store(error: &StoreError) -> ErrorKind {
        match error {
            StoreError::Interrupted => ErrorKind::Interrupted,
            StoreError::Nar { .. } | StoreError::RestoredNar { .. } => ErrorKind::Untrusted,
            StoreError::NoStore { .. } => ErrorKind::Network,
            error if error.is_out_of_space() => ErrorKind::NoSpace,
            _ => ErrorKind::Failed,
        }
    }
}
