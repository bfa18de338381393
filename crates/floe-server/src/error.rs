//! The errors of a server that cannot start.

use std::io;
use std::path::PathBuf;

use floe_store::StoreError;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address as it was given.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A file or directory of the server's own cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// A verb with its object, such as `read the cache`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses something that every server needs.
    #[error("cannot {action}: {source}")]
    System {
        /// A verb with its object, such as `start a thread`.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Two settings contradict each other. The text says which.
    #[error("{0}")]
    Config(&'static str),
}
