//! From the errors of caches to the replies to uploads.

use floe_cache::PublishError;
use floe_server::receive::{ReceiveError, ReceiveErrorKind};
use floe_transfer::{Error, ErrorKind};

/// Returns the error of an upload that the cache cannot take.
pub(super) fn failed(error: Error) -> ReceiveError {
    match error.kind() {
        ErrorKind::Interrupted => {
            ReceiveError::new(ReceiveErrorKind::Busy, "the server stops; try again")
        }
        ErrorKind::NoSpace => {
            ReceiveError::new(ReceiveErrorKind::Full, "the disk of the server is full")
        }
        _ => ReceiveError::new(ReceiveErrorKind::System, error.to_string()),
    }
}

pub(super) fn not_published(error: PublishError) -> ReceiveError {
    match error {
        PublishError::Invalid(message) => invalid(message),
        PublishError::Conflict(message) => conflict(message),
        PublishError::Busy => ReceiveError::new(ReceiveErrorKind::Busy, error.to_string()),
        PublishError::Cache(error) => failed(error),
    }
}

pub(super) fn invalid(message: impl Into<String>) -> ReceiveError {
    ReceiveError::new(ReceiveErrorKind::Invalid, message)
}

pub(super) fn conflict(message: impl Into<String>) -> ReceiveError {
    ReceiveError::new(ReceiveErrorKind::Conflict, message)
}
