//! The failures of remote stores.

use floe_format::StorePath;
use floe_transfer::{Error, ErrorKind, StoreFailure};
use floe_wire::WireError;

/// A failure of a remote store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// The store cannot be reached.
    #[error("cannot connect to {uri}: {reason}")]
    Connect {
        /// The store URI.
        uri: String,
        /// The cause and its remedy.
        reason: String,
    },
    /// The connection ended before the last reply.
    #[error("cannot use {uri} any more: {reason}")]
    Ended {
        /// The store URI.
        uri: String,
        /// The cause.
        reason: String,
    },
    /// The other side breaks the protocol.
    #[error("cannot use {uri}: {fault}")]
    Protocol {
        /// The store URI.
        uri: String,
        /// The fault.
        fault: WireError,
    },
    /// A query failed.
    #[error("cannot query {uri}: {reason}")]
    Query {
        /// The store URI.
        uri: String,
        /// The message of the store.
        reason: String,
    },
    /// A path cannot be read.
    #[error("cannot read {path} from {uri}: {reason}")]
    Read {
        /// The store URI.
        uri: String,
        /// The path.
        path: StorePath,
        /// The message of the store.
        reason: String,
    },
    /// A path cannot be added.
    #[error("cannot add {path} to {uri}: {reason}")]
    Add {
        /// The store URI.
        uri: String,
        /// The path.
        path: StorePath,
        /// The message of the store, and the remedy.
        reason: String,
    },
    /// The store does not trust this user to add paths without signatures.
    #[error(
        "cannot add paths without signatures to {uri}: it does not trust this user; leave out \
         --no-check-sigs and sign the paths, or add the user to trusted-users in nix.conf there"
    )]
    NotTrusted {
        /// The store URI.
        uri: String,
    },
}

impl StoreFailure for RemoteError {
    fn kind(&self) -> ErrorKind {
        match self {
            RemoteError::Connect { .. }
            | RemoteError::Ended { .. }
            | RemoteError::Protocol { .. }
            | RemoteError::Query { .. }
            | RemoteError::Read { .. } => ErrorKind::Network,
            RemoteError::Add { .. } | RemoteError::NotTrusted { .. } => ErrorKind::Failed,
        }
    }

    fn cause_name(&self) -> &'static str {
        match self {
            RemoteError::Connect { .. } => "connect",
            RemoteError::Ended { .. } => "ended",
            RemoteError::Protocol { .. } => "protocol",
            RemoteError::Query { .. } => "query",
            RemoteError::Read { .. } => "read",
            RemoteError::Add { .. } => "add",
            RemoteError::NotTrusted { .. } => "not-trusted",
        }
    }

    fn url(&self) -> Option<&str> {
        match self {
            RemoteError::Connect { uri, .. }
            | RemoteError::Ended { uri, .. }
            | RemoteError::Protocol { uri, .. }
            | RemoteError::Query { uri, .. }
            | RemoteError::Read { uri, .. }
            | RemoteError::Add { uri, .. }
            | RemoteError::NotTrusted { uri } => Some(uri),
        }
    }

    fn concerns_all_sources(&self) -> bool {
        false
    }
}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Error {
        Error::OfKind(Box::new(error))
    }
}
