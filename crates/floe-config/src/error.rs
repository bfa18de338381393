//! Why a configuration cannot be used.

use std::io;
use std::path::PathBuf;

use floe_engine::{Error, ErrorKind};
use floe_format::nix_conf::{LineFault, NixConfError};

use crate::setting::Origin;

/// Why a configuration cannot be used. Errors in files name the place as `FILE:LINE`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A line that Nix would not understand either.
    #[error("{at}: {fault}")]
    Line {
        /// The line.
        at: Origin,
        /// What is wrong with it.
        fault: LineFault,
    },
    /// A text that cannot be parsed as a whole.
    #[error("{origin}: {error}")]
    Text {
        /// The file or the variable.
        origin: String,
        /// What is wrong with it.
        error: NixConfError,
    },
    /// An `include` of a file that does not exist.
    #[error(
        "{at}: the included {} does not exist; write !include for a file that may be missing",
        path.display()
    )]
    Missing {
        /// The line of the `include`.
        at: Origin,
        /// The file.
        path: PathBuf,
    },
    /// A relative `include` in a variable, which has no directory.
    #[error("{at}: the included {} is not an absolute path", path.display())]
    Relative {
        /// The line of the `include`.
        at: Origin,
        /// The file.
        path: PathBuf,
    },
    /// Files that include each other too deep, or without end.
    #[error(
        "{at}: files include each other more than INCLUDE_DEPTH_MAX, {max}, deep; does one \
         include itself?"
    )]
    TooDeep {
        /// The line of the `include`.
        at: Origin,
        /// The limit.
        max: usize,
    },
    /// Too many included files.
    #[error("{at}: more than INCLUDES_MAX, {max}, files are included")]
    TooMany {
        /// The line of the `include`.
        at: Origin,
        /// The limit.
        max: usize,
    },
    /// A value that a setting does not take.
    #[error("{at}: {name} cannot be {value:?}; it takes {allowed}")]
    Value {
        /// Where the value stands.
        at: Origin,
        /// The setting.
        name: String,
        /// As much of the value as may be shown.
        value: String,
        /// What the setting takes.
        allowed: String,
    },
    /// A name that is no setting of floe.
    #[error("{0} is no setting that floe knows; floe config lists them all")]
    Unknown(String),
    /// An environment variable that must be text, and is not UTF-8.
    #[error("{variable}={value}: it is not UTF-8")]
    NotUtf8 {
        /// The variable.
        variable: &'static str,
        /// Its value, with replacement characters.
        value: String,
    },
    /// A store directory that cannot be one. `given` names the flag or the variable too.
    #[error("{given}: {reason}")]
    StoreDir {
        /// The flag or the variable, with its value.
        given: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A store URI that does not parse.
    #[error(transparent)]
    StoreUri(#[from] Error),
    /// The configured store, which `auto` stands for, has a URI that does not parse.
    #[error("{error} ({origin} says so; name another store)")]
    ConfiguredStore {
        /// What is wrong with it.
        error: Box<Error>,
        /// Where it is configured.
        origin: Origin,
    },
    /// A store that floe cannot serve.
    #[error(
        "cannot serve {uri}: floe serves a store of this machine: a directory, local, \
         local?root=DIR or auto"
    )]
    NotServable {
        /// The store URI as given.
        uri: String,
    },
    /// The socket of a daemon whose store cannot be told from its path.
    #[error(
        "cannot tell which store is behind the daemon at {socket}: give its directory with --store"
    )]
    UnknownSocket {
        /// The path of the socket.
        socket: String,
    },
    /// A directory of logs with percent signs.
    #[error("the parameter log={value}: floe reads no percent signs here; set NIX_LOG_DIR instead")]
    LogParameter {
        /// The value of the parameter.
        value: String,
    },
    /// The directory below which a store lies cannot be made absolute.
    #[error("{0}")]
    PathSpec(io::Error),
    /// Settings of harmonia that cannot be used.
    #[error("{}: {reason}", file.display())]
    Harmonia {
        /// Their file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Settings of harmonia that cannot be read.
    #[error("reading the settings in {}: {source}", file.display())]
    HarmoniaFile {
        /// Their file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of a secret key that cannot be read.
    #[error("reading the secret key in {}: {source}", file.display())]
    SecretKeyFile {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that holds no secret key. The error repeats nothing of the file, which may hold a
    /// part of a secret.
    #[error(
        "reading the secret key in {}: it is not one key of the form NAME:BASE64; floe key \
         generate NAME makes one",
        file.display()
    )]
    NotASecretKey {
        /// The file.
        file: PathBuf,
    },
    /// A group that the system cannot look up.
    #[error("looking up the group {name}: {source}")]
    Account {
        /// The name of the group.
        name: String,
        /// What the system says.
        source: io::Error,
    },
}

impl ConfigError {
    /// Returns what the error means for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ConfigError::StoreUri(error) => error.kind(),
            ConfigError::PathSpec(_)
            | ConfigError::HarmoniaFile { .. }
            | ConfigError::SecretKeyFile { .. }
            | ConfigError::NotASecretKey { .. }
            | ConfigError::Account { .. } => ErrorKind::Failed,
            _ => ErrorKind::Usage,
        }
    }
}
