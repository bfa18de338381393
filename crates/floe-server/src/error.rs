//! Why a server cannot start.

use std::io;
use std::path::PathBuf;

use floe_store::StoreError;

/// Any failure before a server runs.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An address cannot be listened on.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address as it was given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file or directory of the server's own cannot be used.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something that every server needs.
    #[error("{action}: {source}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Settings that do not fit together, in these words.
    #[error("{0}")]
    Config(&'static str),
}
