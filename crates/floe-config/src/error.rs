//! Why a configuration cannot be used.

use std::io;
use std::path::PathBuf;

use floe_format::nix_conf::{LineFault, NixConfError};
use floe_transfer::{Error, ErrorKind};

use crate::setting::Origin;

/// Why a configuration cannot be used. Errors in files name the place as `FILE:LINE`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A line that Nix would not understand either.
    #[error("{at}: {fault}")]
    Line {
        /// The line.
        at: Origin,
        /// The cause.
        fault: LineFault,
    },
    /// A text that cannot be parsed as a whole.
    #[error("{origin}: {error}")]
    Text {
        /// The file or the variable.
        origin: String,
        /// The cause.
        error: NixConfError,
    },
    /// An `include` of a file that does not exist.
    #[error(
        "{at}: cannot include {}: it does not exist; write !include for a file that may be missing",
        path.display()
    )]
    Missing {
        /// The line of the `include`.
        at: Origin,
        /// The file.
        path: PathBuf,
    },
    /// A relative `include` in a variable, which has no directory.
    #[error(
        "{at}: cannot include {}: NIX_CONFIG has no directory; write an absolute path",
        path.display()
    )]
    Relative {
        /// The line of the `include`.
        at: Origin,
        /// The file.
        path: PathBuf,
    },
    /// Files that include each other too deep, or without end.
    #[error(
        "{at}: cannot include files more than {max} deep (INCLUDE_DEPTH_MAX); check whether a file \
         includes itself"
    )]
    TooDeep {
        /// The line of the `include`.
        at: Origin,
        /// The limit.
        max: usize,
    },
    /// Too many included files.
    #[error("{at}: cannot include more than {max} files (INCLUDES_MAX)")]
    TooMany {
        /// The line of the `include`.
        at: Origin,
        /// The limit.
        max: usize,
    },
    /// A value that a setting does not take.
    #[error("{at}: cannot set {name} to {value:?}: it takes {allowed}")]
    Value {
        /// Where the value stands.
        at: Origin,
        /// The setting.
        name: String,
        /// As much of the value as may be shown.
        value: String,
        /// The values that the setting accepts.
        allowed: String,
    },
    /// A name that is no setting of floe.
    #[error("cannot show {0}: unknown setting; floe config lists the known ones")]
    Unknown(String),
    /// An environment variable that must be text, and is not UTF-8.
    #[error("cannot use {variable}={value}: it is not UTF-8")]
    NotUtf8 {
        /// The variable.
        variable: &'static str,
        /// Its value, with replacement characters.
        value: String,
    },
    /// A flag or a variable that holds no store directory.
    #[error("{given}: {reason}")]
    StoreDir {
        /// The name of the flag or the variable.
        given: &'static str,
        /// The cause.
        reason: String,
    },
    /// A store URI that does not parse.
    #[error(transparent)]
    StoreUri(#[from] Error),
    /// The configured store, which `auto` stands for, has a URI that does not parse.
    #[error("cannot use the configured store ({origin}): {error}; name another store")]
    ConfiguredStore {
        /// The cause.
        error: Box<Error>,
        /// Where it is configured.
        origin: Origin,
    },
    /// A store that floe cannot serve.
    #[error(
        "cannot serve {uri}: it is no local store; give a directory, local, local?root=DIR or auto"
    )]
    NotServable {
        /// The store URI as given.
        uri: String,
    },
    /// The socket of a daemon whose store cannot be told from its path.
    #[error(
        "cannot find the store of the daemon at {socket}: the path of the socket does not name it; \
         give its directory with --store"
    )]
    UnknownSocket {
        /// The path of the socket.
        socket: String,
    },
    /// A directory of logs with percent signs.
    #[error(
        "cannot use the parameter log={value}: percent signs are not supported; set NIX_LOG_DIR \
         instead"
    )]
    LogParameter {
        /// The value of the parameter.
        value: String,
    },
    /// The directory below which a store lies cannot be made absolute.
    #[error("cannot make the path of --root absolute: {0}")]
    RootDir(io::Error),
    /// Settings of harmonia that cannot be used.
    #[error("cannot use the settings in {}: {reason}", file.display())]
    Harmonia {
        /// Their file.
        file: PathBuf,
        /// The cause.
        reason: String,
    },
    /// Settings of harmonia that cannot be read.
    #[error("cannot read the settings in {}: {source}", file.display())]
    HarmoniaFile {
        /// Their file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file of a secret key cannot be used.
    #[error(transparent)]
    SecretKey(Box<Error>),
    /// A group that the system cannot look up.
    #[error("cannot look up the group {name}: {source}")]
    Account {
        /// The name of the group.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl ConfigError {
    /// Returns what the error means for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ConfigError::StoreUri(error) => error.kind(),
            ConfigError::RootDir(_)
            | ConfigError::HarmoniaFile { .. }
            | ConfigError::SecretKey(_)
            | ConfigError::Account { .. } => ErrorKind::Failed,
            _ => ErrorKind::Usage,
        }
    }
}
