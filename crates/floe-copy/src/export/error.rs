//! The errors of exports.

use std::io;

use floe_format::StorePath;
use floe_format::nar::read::NarError;
use floe_transfer::{Error, ErrorKind, StoreFailure};
use floe_wire::WireError;

/// The reason why an export cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A read or a write has failed.
    #[error("cannot {action} the export {name}: {source}")]
    Io {
        /// The verb.
        action: &'static str,
        /// The name of the file.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A part between the NARs is wrong.
    #[error("cannot read the export {name}: after {position} bytes, {source}")]
    Format {
        /// The name of the file.
        name: String,
        /// The number of bytes before.
        position: u64,
        /// The cause.
        source: WireError,
    },
    /// A NAR is wrong.
    #[error("cannot read the export {name}: the NAR after {position} bytes is damaged: {source}")]
    Nar {
        /// The name of the file.
        name: String,
        /// The number of bytes before.
        position: u64,
        /// The cause.
        source: NarError,
    },
    /// The stream ends within a path.
    #[error(
        "cannot read the export {name}: it ends after {position} bytes, within a path or before \
         its last number"
    )]
    Truncated {
        /// The name of the file.
        name: String,
        /// The number of bytes.
        position: u64,
    },
    /// A path stands twice, with other contents or references.
    #[error("cannot read the export {name}: it has two versions of {path}")]
    Ambiguous {
        /// The name of the file.
        name: String,
        /// The path.
        path: StorePath,
    },
    /// A part of a path is in the stream, and the rest could not be fetched.
    #[error("cannot write the export {name}: a part of {path} is written already")]
    Unfinished {
        /// The name of the file.
        name: String,
        /// The path.
        path: StorePath,
    },
}

impl StoreFailure for ExportError {
    fn kind(&self) -> ErrorKind {
        match self {
            ExportError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                ErrorKind::NoSpace
            }
            ExportError::Io { .. } | ExportError::Unfinished { .. } => ErrorKind::Failed,
            _ => ErrorKind::Untrusted,
        }
    }

    fn cause_name(&self) -> &'static str {
        match self {
            ExportError::Io { .. } => "export I/O",
            ExportError::Format { .. } | ExportError::Nar { .. } => "damaged export",
            ExportError::Truncated { .. } => "truncated export",
            ExportError::Ambiguous { .. } => "ambiguous export",
            ExportError::Unfinished { .. } => "unfinished export",
        }
    }

    fn url(&self) -> Option<&str> {
        None
    }

    fn ends_copy(&self) -> bool {
        true
    }

    fn concerns_all_sources(&self) -> bool {
        true
    }
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Error {
        Error::OfKind(Box::new(error))
    }
}
