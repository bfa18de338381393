//! Why a configuration cannot be used.

use std::path::PathBuf;

use floe_format::nix_conf::{LineFault, NixConfError};

use super::setting::Origin;
use crate::exit::UsageError;

/// Why a configuration cannot be used. Each names the place, as `FILE:LINE` where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConfigError {
    /// A line says nothing that Nix would understand.
    #[error("{at}: {fault}")]
    Line { at: Origin, fault: LineFault },
    /// A text as a whole cannot be parsed.
    #[error("{origin}: {error}")]
    Text { origin: String, error: NixConfError },
    /// `include` of what is not there.
    #[error(
        "{at}: the included {} does not exist; write !include for a file that may be missing",
        path.display()
    )]
    Missing { at: Origin, path: PathBuf },
    /// An environment variable has no directory.
    #[error("{at}: the included {} is not an absolute path", path.display())]
    Relative { at: Origin, path: PathBuf },
    /// Files include each other without end, or nearly.
    #[error(
        "{at}: files include each other more than INCLUDE_DEPTH_MAX, {max}, deep; does one \
         include itself?"
    )]
    TooDeep { at: Origin, max: usize },
    /// Many files are included.
    #[error("{at}: more than INCLUDES_MAX, {max}, files are included")]
    TooMany { at: Origin, max: usize },
    /// A setting does not take that value.
    #[error("{at}: {name} cannot be {value:?}; it takes {allowed}")]
    Value {
        at: Origin,
        name: String,
        /// As much of it as may be shown.
        value: String,
        allowed: String,
    },
    /// Asked for by name.
    #[error("{0} is no setting that floe knows; floe config lists them all")]
    Unknown(String),
}

impl From<ConfigError> for UsageError {
    fn from(error: ConfigError) -> UsageError {
        UsageError(error.to_string())
    }
}
