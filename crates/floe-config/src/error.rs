//! Why a configuration cannot be used.

use std::io;
use std::path::PathBuf;

use floe_transfer::{Error, ErrorKind};

use crate::origin::Origin;

/// Why a configuration cannot be used. Errors in files name the place as `FILE:LINE`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A text or one of its lines that Nix would not understand either.
    #[error("{at}: {reason}")]
    Syntax {
        /// The line, or the file or variable as a whole.
        at: String,
        /// The cause.
        reason: String,
    },
    /// A file that cannot be included: it is missing or relative to nothing, or too many are.
    #[error("{at}: cannot include {reason}")]
    Include {
        /// The line of the `include`.
        at: Origin,
        /// The file or the number of files, and the cause.
        reason: String,
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
        allowed: &'static str,
    },
    /// A name that is not a setting of floe.
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
    /// A store that floe cannot serve, by its URI.
    #[error(
        "cannot serve {0}: it is not a local store; give a directory, local, local?root=DIR or auto"
    )]
    NotServable(String),
    /// The path of a daemon's socket that does not name the store.
    #[error(
        "cannot find the store of the daemon at {0}: the path of the socket does not name it; \
         give its directory with --store"
    )]
    UnknownSocket(String),
    /// A parameter `log` with percent signs, by its value.
    #[error(
        "cannot use the parameter log={0}: percent signs are not supported; set NIX_LOG_DIR \
         instead"
    )]
    LogParameter(String),
    /// The directory below which a store lies cannot be made absolute.
    #[error("cannot make the path of --root absolute: {0}")]
    RootDir(io::Error),
    /// `--root` names no directory that may contain a store.
    #[error("cannot use --root {}: {reason}", root.display())]
    RootArgument {
        /// The argument.
        root: PathBuf,
        /// The cause and its remedy.
        reason: String,
    },
    /// A configuration file of `floe serve` that cannot be used.
    #[error("cannot use the configuration file {at}: {reason}")]
    ServeFile {
        /// The file and the line.
        at: String,
        /// The cause, which names the key.
        reason: String,
    },
    /// A configuration file of `floe serve` that cannot be read.
    #[error("cannot read the configuration file {}: {source}", file.display())]
    ServeFileRead {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A setting of the compressed NAR cache, which is not configured.
    #[error("cannot use {0}: there is no compressed NAR cache; add --compressed-cache DIR")]
    NoCompressedCache(String),
    /// A path among the settings that a file cannot hold, by its key.
    #[error("cannot print {0}: the path is not UTF-8")]
    NotPrintable(&'static str),
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
            | ConfigError::ServeFileRead { .. }
            | ConfigError::SecretKey(_)
            | ConfigError::Account { .. } => ErrorKind::Failed,
            _ => ErrorKind::Usage,
        }
    }
}
