//! The errors of names and their sources.

use std::sync::Arc;

use floe_transfer::{Error, ErrorKind};

/// Why a name has no store path.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The text is not a name.
    #[error("cannot use {text:?} as a name: {reason}")]
    Grammar {
        /// The text, shortened if it is long.
        text: String,
        /// Which part is wrong.
        reason: String,
    },
    /// The description of a source is wrong.
    #[error("cannot use the name source {text}: {reason}")]
    SourceUri {
        /// The description.
        text: String,
        /// Which part is wrong.
        reason: String,
    },
    /// No configured source has the alias before `#`.
    #[error("cannot find {name}: no name source is called {alias:?}; {known}")]
    UnknownSource {
        /// The name.
        name: String,
        /// The alias.
        alias: String,
        /// Which aliases there are, and how to add one.
        known: String,
    },
    /// No source has the name.
    #[error("cannot find {name}: {reason}")]
    NotFound {
        /// The name.
        name: String,
        /// Which sources were asked, and what to do.
        reason: String,
    },
    /// The source has the package, but not as the user wants it.
    #[error("cannot use {name} of {source_name}: {reason}")]
    Unusable {
        /// The name.
        name: String,
        /// The URI of the source.
        source_name: String,
        /// The cause: an output, a version, or the state of the build.
        reason: String,
    },
    /// A pin of a cache is not what it should be.
    #[error("cannot use {name} of {source_name}: {reason}")]
    Untrusted {
        /// The name.
        name: String,
        /// The URI of the source.
        source_name: String,
        /// Which check failed.
        reason: String,
    },
    /// A source replied with something else than its format.
    #[error("cannot read {place}: {reason}")]
    Reply {
        /// The URL or the file.
        place: String,
        /// The cause.
        reason: String,
    },
    /// A source does not reply to a search.
    #[error("cannot read the name source {source_name}: {cause}")]
    SourceAway {
        /// The URI of the source.
        source_name: String,
        /// The failure of the request.
        cause: Arc<Error>,
    },
    /// A source does not reply.
    #[error("cannot find {name}: {cause}")]
    Unreachable {
        /// The name.
        name: String,
        /// The failure of the request.
        cause: Arc<Error>,
    },
}

impl NameError {
    /// Returns the kind, which chooses the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            NameError::Grammar { .. }
            | NameError::SourceUri { .. }
            | NameError::UnknownSource { .. } => ErrorKind::Usage,
            NameError::Unreachable { cause, .. } | NameError::SourceAway { cause, .. } => {
                cause.kind()
            }
            NameError::Untrusted { .. } => ErrorKind::Untrusted,
            NameError::NotFound { .. } | NameError::Unusable { .. } | NameError::Reply { .. } => {
                ErrorKind::Failed
            }
        }
    }
}
