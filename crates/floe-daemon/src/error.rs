//! The reasons why a client is not served.

use std::collections::BTreeSet;
use std::io;

use floe_format::StorePath;
use floe_store::StoreError;
use floe_transfer::Error;
use floe_wire::WireError;

/// A reason why a client is not served.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A path does not match its description.
    #[error(transparent)]
    Transfer(Box<Error>),
    /// The client breaks the protocol.
    #[error("cannot understand the client: {0}")]
    Wire(#[from] WireError),
    /// The client breaks the format of the paths that it adds.
    #[error("cannot understand the paths of the client: {0}")]
    Contents(#[source] WireError),
    /// The connection cannot be read or written.
    #[error("cannot {action} the client: {source}")]
    Connection {
        /// `read from` or `write to`.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The client ends the connection within a message.
    #[error("the client has ended the connection in the middle of {0}")]
    Ended(String),
    /// The client may not do that.
    #[error("cannot {action}: {reason}")]
    Forbidden {
        /// A verb with its object, such as `add PATH`.
        action: String,
        /// Why not, and what would help.
        reason: String,
    },
    /// The path cannot be added at this moment.
    #[error("cannot add {path}: {reason}; try again later")]
    Busy {
        /// The path.
        path: StorePath,
        /// The cause.
        reason: &'static str,
    },
    /// The path is not valid.
    #[error("path '{0}' is not valid")]
    NotValid(String),
    /// A path refers to paths that are not valid.
    #[error(
        "cannot add {path}: its references {} are not valid; add them first",
        list(missing)
    )]
    MissingReferences {
        /// The path.
        path: StorePath,
        /// The references.
        missing: BTreeSet<StorePath>,
    },
    /// The path is valid, and is another one than that of the client.
    #[error("cannot add {path}: the store has it with another {what}")]
    Different {
        /// The path.
        path: StorePath,
        /// The fact that differs, such as `NAR hash`.
        what: &'static str,
    },
    /// The NAR of a path did not come before its description.
    #[error("cannot add {0}: its NAR is not here; upload it first")]
    NarAbsent(StorePath),
    /// The contents of a valid path have changed.
    #[error(
        "cannot export {path}: its contents have the hash {actual}, and {expected} is registered"
    )]
    Changed {
        /// The path.
        path: StorePath,
        /// The registered hash.
        expected: String,
        /// The hash of the contents.
        actual: String,
    },
    /// A temporary file cannot be used.
    #[error("cannot write a temporary file in the store directory: {source}")]
    Spool {
        /// The error of the system.
        source: io::Error,
    },
    /// A NAR breaks off in the middle. The client would take a message for its bytes.
    #[error("{0}")]
    NarBroken(Box<HostError>),
    /// A derivation would have to be built.
    #[error(
        "cannot build {0}: this machine has floe, which copies paths and builds none; build it \
         elsewhere, and copy the result"
    )]
    CannotBuild(String),
    /// floe does not do that.
    #[error("{0}")]
    Refused(String),
    /// Missing paths cannot be fetched.
    #[error("{0}")]
    Substitute(String),
}

impl From<Error> for HostError {
    fn from(error: Error) -> HostError {
        HostError::Transfer(Box::new(error))
    }
}

impl HostError {
    /// Whether a client that wants a build gets this error as the result of the build.
    pub(crate) fn is_result_of_build(&self) -> bool {
        matches!(
            self,
            HostError::CannotBuild(_) | HostError::Refused(_) | HostError::Substitute(_)
        )
    }

    /// Whether the connection cannot be used afterwards.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(
            self,
            HostError::Wire(_)
                | HostError::Connection { .. }
                | HostError::Ended(_)
                | HostError::NarBroken(_)
        )
    }
}

/// Names the first paths, because a client may name thousands.
fn list(paths: &BTreeSet<StorePath>) -> String {
    let names: Vec<&str> = paths
        .iter()
        .take(LISTED_MAX)
        .map(StorePath::as_str)
        .collect();
    match paths.len().saturating_sub(LISTED_MAX) {
        0 => names.join(", "),
        others => format!("{} and {others} others", names.join(", ")),
    }
}

const LISTED_MAX: usize = 10;
