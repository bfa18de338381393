//! Errors of the system with the action and the path.

use std::io;
use std::path::Path;

use super::StoreError;

/// Adds the action and the path to an error of the system.
pub(crate) trait IoContext<T> {
    fn io_context(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, StoreError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn io_context(self, action: &'static str, path: impl AsRef<Path>) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Io {
            action,
            path: path.as_ref().to_path_buf(),
            source: source.into(),
        })
    }
}
