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
    #[error("cannot use {uri}: {fault}{advice}")]
    Protocol {
        /// The store URI.
        uri: String,
        /// The fault.
        fault: WireError,
        /// The remedy, if there is one.
        advice: &'static str,
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
    /// The target failed as a whole.
    #[error("{0}")]
    Target(Box<RemoteError>),
    /// The copy was cancelled.
    #[error("the copy was cancelled")]
    Cancelled,
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
            RemoteError::Target(failure) => failure.kind(),
            RemoteError::Cancelled => ErrorKind::Interrupted,
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
            RemoteError::Target(failure) => failure.cause_name(),
            RemoteError::Cancelled => "cancelled",
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
            RemoteError::Target(failure) => failure.url(),
            RemoteError::Cancelled => None,
        }
    }

    fn ends_copy(&self) -> bool {
        matches!(self, RemoteError::Target(_))
    }

    fn concerns_all_sources(&self) -> bool {
        false
    }
}

impl RemoteError {
    /// Makes the error for a reply of another kind than the request demands.
    pub(crate) fn unexpected_reply(uri: &str) -> RemoteError {
        RemoteError::Query {
            uri: uri.to_owned(),
            reason: "the reply is of another kind than the request".into(),
        }
    }

    /// Wraps an error that ends the whole target. The refusal of one path does not.
    pub(crate) fn of_target(self) -> Error {
        match self {
            error @ (RemoteError::Add { .. } | RemoteError::Cancelled) => error.into(),
            error => RemoteError::Target(Box::new(error)).into(),
        }
    }
}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Error {
        match error {
            RemoteError::Cancelled => Error::Cancelled,
            error => Error::OfKind(Box::new(error)),
        }
    }
}
