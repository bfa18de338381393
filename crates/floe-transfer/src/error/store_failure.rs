//! The failures of one kind of store.

use std::error::Error;

use crate::error_kind::ErrorKind;

/// A failure that only one kind of store has. Its text has the cause and the remedy.
pub trait StoreFailure: Error + Send + Sync {
    /// Returns the meaning of the failure for the caller.
    fn kind(&self) -> ErrorKind;

    /// Returns a name that all failures with the same cause have.
    fn cause_name(&self) -> &'static str;

    /// Returns the URL that the failure is about, without credentials.
    fn url(&self) -> Option<&str>;

    /// Whether another attempt may succeed.
    fn is_transient(&self) -> bool {
        false
    }

    /// Marks the failure as permanent, after the last attempt.
    fn set_permanent(&mut self) {}

    /// Whether the target can receive nothing any more, so that the copy ends.
    fn ends_copy(&self) -> bool {
        false
    }

    /// Whether all sources of the kind fail in the same way.
    fn concerns_all_sources(&self) -> bool;
}
