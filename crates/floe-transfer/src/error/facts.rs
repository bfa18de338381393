//! The facts that an error has for its callers.

use std::time::Duration;

use floe_store::StoreError;

use super::Error;

impl Error {
    /// Returns the base name of the path that the error is about, or its hash part if only that is
    /// known.
    pub fn path_name(&self) -> Option<&str> {
        match self {
            Error::Store(
                StoreError::Nar { path, .. }
                | StoreError::Derivation { path, .. }
                | StoreError::PathObstructed {
                    store_path: path, ..
                }
                | StoreError::MissingReferences { path, .. },
            )
            | Error::Untrusted { path, .. }
            | Error::TooFewSignatures { path, .. }
            | Error::UntrustedRealisation { path, .. }
            | Error::ContentAddressMismatch { path, .. }
            | Error::WeakContentAddress { path, .. }
            | Error::Mismatch { path, .. }
            | Error::InvalidNar { path, .. }
            | Error::Decode { path, .. }
            | Error::Unsupported { path, .. }
            | Error::MissingReferences { path, .. }
            | Error::Busy { path, .. }
            | Error::Nar { path, .. }
            | Error::Vanished { path } => Some(path.as_str()),
            Error::NotFound { path, .. } => Some(path),
            Error::WrongPath { wanted, .. } | Error::WrongName { wanted, .. } => Some(wanted),
            Error::SourceDisabled(error) => error.path_name(),
            _ => None,
        }
    }

    /// Returns the URL that the error is about, without credentials.
    pub fn url(&self) -> Option<&str> {
        match self {
            Error::Fetch { url, .. }
            | Error::WrongPath { url, .. }
            | Error::WeakContentAddress { url, .. }
            | Error::Mismatch { url, .. }
            | Error::InvalidNar { url, .. }
            | Error::Decode { url, .. } => Some(url),
            Error::SourceDisabled(error) => error.url(),
            Error::OfKind(failure) => failure.url(),
            Error::Nar { source, .. } => source.url(),
            _ => None,
        }
    }

    /// Returns the delay that a server has demanded before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Fetch { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns the status with which a server refused a request.
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Fetch { status, .. } => *status,
            _ => None,
        }
    }

    /// Whether the server has too many requests: status 429 or 503.
    pub fn is_rate_limited(&self) -> bool {
        let limited = [Some(429), Some(503)];
        matches!(self, Error::Fetch { status, .. } if limited.contains(status))
    }

    /// Whether another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Fetch { transient, .. } => *transient,
            Error::OfKind(failure) => failure.is_transient(),
            _ => false,
        }
    }

    /// Whether the target can receive nothing any more, so that the copy ends.
    pub fn ends_copy(&self) -> bool {
        matches!(self, Error::OfKind(failure) if failure.ends_copy())
    }
}
