//! The failures that only binary caches have.

use std::io;
use std::path::{Path, PathBuf};

use floe_format::narinfo::NarInfoError;
use floe_format::realisation::RealisationError;
use floe_transfer::{Error, ErrorKind, StoreFailure};

/// A failure of a binary cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A URL does not lead to a binary cache.
    #[error(
        "cannot use {url} as a binary cache: it has no valid nix-cache-info ({reason}); check the \
         URL"
    )]
    NotACache {
        /// The URL without credentials.
        url: String,
        /// The cause.
        reason: String,
    },
    /// A server replies to queries with web pages.
    #[error(
        "cannot use {url} as a binary cache: it answers each query with a web page, perhaps of a \
         login; check the URL"
    )]
    WebPages {
        /// The URL without credentials.
        url: String,
    },
    /// A narinfo does not parse.
    #[error("cannot use the narinfo {url}: {source}")]
    NarInfo {
        /// Its URL.
        url: String,
        /// The cause.
        source: Box<NarInfoError>,
    },
    /// A realisation does not parse.
    #[error("cannot use the realisation {url}: {source}")]
    Realisation {
        /// Its URL.
        url: String,
        /// The cause.
        source: RealisationError,
    },
    /// A narinfo has a URL that leads to no NAR.
    #[error("cannot use a narinfo of {source_name}: its URL {url:?} is invalid: {reason}")]
    NarUrl {
        /// The source.
        source_name: String,
        /// The URL.
        url: String,
        /// The cause.
        reason: String,
    },
    /// A server did not take an object.
    #[error("cannot write {url}: {reason}")]
    Write {
        /// The URL of the object without credentials.
        url: String,
        /// The cause and its remedy.
        reason: String,
        /// Whether the same upload may succeed a moment later.
        transient: bool,
    },
    /// The objects of a cache cannot be listed.
    #[error("cannot list {url}: {reason}")]
    List {
        /// The URL without credentials.
        url: String,
        /// The cause and its remedy.
        reason: String,
    },
    /// A small object beside the paths, such as a plan, does not parse.
    #[error(
        "cannot use {name} of {url}: {reason}; perhaps a newer floe has written it, or try to \
         delete it"
    )]
    SmallObject {
        /// The URL of the cache without credentials.
        url: String,
        /// The name of the object.
        name: String,
        /// The cause.
        reason: String,
    },
    /// There are no credentials for a bucket. The error repeats nothing of them.
    #[error("cannot get credentials for S3: {reason}")]
    Credentials {
        /// The cause and its remedy.
        reason: String,
        /// Whether another attempt may succeed.
        transient: bool,
    },
    /// A part of the network of a session cannot be made.
    #[error("cannot set up {what}: {reason}")]
    SetUp {
        /// The part.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// A network thread has dropped a request without a reply.
    #[error(
        "cannot finish a request to a cache: a network thread dropped it, which is a bug in floe \
         unless the copy was cancelled"
    )]
    Dropped,
    /// The URL of a proxy is invalid.
    #[error("cannot use the proxy {value} of {variable}: it must look like http://HOST:PORT")]
    Proxy {
        /// The variable or option.
        variable: &'static str,
        /// Its value, without credentials.
        value: String,
    },
    /// A file contains no secret key. The error repeats nothing of the file, which may contain a
    /// part of a secret.
    #[error("cannot read the secret key in {}: {reason}", path.display())]
    SecretKey {
        /// The file.
        path: PathBuf,
        /// The cause and its remedy.
        reason: &'static str,
    },
}

impl CacheError {
    /// Makes the error of credentials that another attempt would not find either.
    #[cfg(feature = "s3")]
    pub(crate) fn credentials(reason: impl Into<String>) -> CacheError {
        CacheError::Credentials {
            reason: reason.into(),
            transient: false,
        }
    }
}

impl StoreFailure for CacheError {
    fn kind(&self) -> ErrorKind {
        match self {
            CacheError::NotACache { .. }
            | CacheError::WebPages { .. }
            | CacheError::Write { .. }
            | CacheError::List { .. }
            | CacheError::Credentials { .. }
            | CacheError::SetUp { .. }
            | CacheError::SmallObject { .. }
            | CacheError::Dropped => ErrorKind::Network,
            CacheError::NarInfo { .. }
            | CacheError::Realisation { .. }
            | CacheError::NarUrl { .. } => ErrorKind::Untrusted,
            CacheError::Proxy { .. } => ErrorKind::Usage,
            CacheError::SecretKey { .. } => ErrorKind::Failed,
        }
    }

    fn cause_name(&self) -> &'static str {
        match self {
            CacheError::NotACache { .. } | CacheError::WebPages { .. } => "cache",
            CacheError::NarInfo { .. } => "narinfo",
            CacheError::Realisation { .. } => "realisation",
            CacheError::NarUrl { .. } => "nar-url",
            CacheError::Write { .. } => "write",
            CacheError::List { .. } => "list",
            CacheError::Credentials { .. } => "credentials",
            CacheError::SetUp { .. } => "set-up",
            CacheError::Dropped => "dropped",
            CacheError::Proxy { .. } => "proxy",
            CacheError::SecretKey { .. } => "secret-key",
            CacheError::SmallObject { .. } => "small-object",
        }
    }

    fn url(&self) -> Option<&str> {
        match self {
            CacheError::NotACache { url, .. }
            | CacheError::NarInfo { url, .. }
            | CacheError::Write { url, .. }
            | CacheError::List { url, .. } => Some(url),
            _ => None,
        }
    }

    fn set_permanent(&mut self) {
        if let CacheError::Write { transient, .. } | CacheError::Credentials { transient, .. } =
            self
        {
            *transient = false;
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            CacheError::Write { transient, .. } | CacheError::Credentials { transient, .. } => {
                *transient
            }
            _ => false,
        }
    }

    fn concerns_all_sources(&self) -> bool {
        matches!(self, CacheError::Proxy { .. })
    }
}

impl From<CacheError> for Error {
    fn from(error: CacheError) -> Error {
        Error::OfKind(Box::new(error))
    }
}

/// Returns the conversion of a system error about a file.
pub(crate) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Returns the conversion of a system error about a file that is read.
pub(crate) fn read_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::UnreadableFile {
        action,
        path: path.to_owned(),
        source,
    }
}
