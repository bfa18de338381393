//! What can go wrong on a move, with the path and the URL at fault as data.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use floe_format::narinfo::NarInfoError;
use floe_format::{Compression, StorePath};
use floe_store::{StoreError, is_out_of_space};

use crate::disk_space::Shortage;

/// Any failure of a move.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The local store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request or a transfer failed.
    #[error("fetching {url}: {reason}")]
    Fetch {
        /// What was asked for, without credentials.
        url: String,
        /// What happened.
        reason: String,
        /// Whether the same request may well succeed in a moment.
        transient: bool,
        /// How long the server wants to be left alone before that.
        retry_after: Option<Duration>,
    },
    /// A file of a cache could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no cache at that address.
    #[error("{url} is not a binary cache: it has no nix-cache-info ({reason})")]
    NotACache {
        /// The address, without credentials.
        url: String,
        /// What came instead.
        reason: String,
    },
    /// A cache, or another store, holds paths for another store directory.
    #[error(
        "{source_name} holds paths for {found}, but the target is {wanted}; \
         choose the target's directory with --store-dir {found}"
    )]
    StoreDirMismatch {
        /// The source.
        source_name: String,
        /// Its store directory.
        found: String,
        /// The store directory of the target.
        wanted: String,
    },
    /// The address of a store or cache does not parse.
    #[error("{text:?} is no store or cache that floe knows: {reason}")]
    InvalidStoreUri {
        /// The address as given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What was asked for is no store path.
    #[error(
        "{text:?} is not a store path: {reason}; give {store_dir}/HASH-NAME, HASH-NAME or HASH"
    )]
    InvalidStorePath {
        /// The text as given.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// The store directory that was expected.
        store_dir: String,
    },
    /// What should be a public key is none. The text may be a secret key that was given by mistake,
    /// so only its name is kept.
    #[error(
        "the text that begins with {name:?} is not a public key; one looks like NAME:BASE64 \
         (floe key public makes it from a secret key)"
    )]
    InvalidPublicKey {
        /// What stands before the first colon.
        name: String,
    },
    /// What should be a proxy is none.
    #[error("{variable} names {value}, which is no proxy; one looks like http://HOST:PORT")]
    Proxy {
        /// The variable that names it.
        variable: &'static str,
        /// Its value, without credentials.
        value: String,
    },
    /// No source has a path.
    #[error("{path} is not in {}", sources.join(", "))]
    NotFound {
        /// The base name or hash part.
        path: String,
        /// Where it was looked for.
        sources: Vec<String>,
    },
    /// Nothing was named to fetch from.
    #[error("there is nothing to fetch from; name a cache or a store with --from")]
    NoSources,
    /// A source that failed before is not asked any more; why it failed.
    #[error(transparent)]
    SourceDisabled(Arc<Error>),
    /// A narinfo does not parse.
    #[error("the narinfo {url} is corrupt: {source}")]
    NarInfo {
        /// Where it is.
        url: String,
        /// What is wrong with it.
        source: Box<NarInfoError>,
    },
    /// A narinfo describes another path than the one asked for.
    #[error("the narinfo {url} is for {found}, not for {wanted}; refusing it")]
    WrongPath {
        /// Where it is.
        url: String,
        /// The path it describes.
        found: StorePath,
        /// What was asked for.
        wanted: String,
    },
    /// No trusted key has signed a path.
    #[error(
        "{path} from {source_name} is not signed by a trusted key: {}",
        explain(signed_by, trusted)
    )]
    Untrusted {
        /// The path.
        path: StorePath,
        /// Where it was offered.
        source_name: String,
        /// The names of the keys that signed it.
        signed_by: Vec<String>,
        /// The names of the keys that are trusted.
        trusted: Vec<String>,
    },
    /// A path claims a content address that names another path.
    #[error(
        "{path} from {source_name} claims to be content-addressed as {ca}, which names another path"
    )]
    ContentAddressMismatch {
        /// The path.
        path: StorePath,
        /// Where it was offered.
        source_name: String,
        /// The address.
        ca: String,
    },
    /// A content address whose contents floe cannot hash.
    #[error("{path} is content-addressed by the method `git`, which floe does not support")]
    GitContentAddress {
        /// The path.
        path: StorePath,
    },
    /// What arrived is not what was promised.
    #[error("{path} from {url}: the {what} is {actual}, but {expected} was promised; refusing it")]
    Mismatch {
        /// The path.
        path: StorePath,
        /// Where it came from.
        url: String,
        /// What differs, such as `NAR hash`.
        what: &'static str,
        /// What was promised.
        expected: String,
        /// What arrived.
        actual: String,
    },
    /// A body does not decompress.
    #[error("{path} from {url}: decompressing it as {}: {reason}", compression.name())]
    Decode {
        /// The path.
        path: StorePath,
        /// Where it came from.
        url: String,
        /// How it should be compressed.
        compression: Compression,
        /// What the decoder said.
        reason: String,
    },
    /// A compression that floe does not know how to undo or do.
    #[error("{path}: the compression {name} is not supported")]
    UnsupportedCompression {
        /// The path.
        path: StorePath,
        /// Its compression.
        name: String,
    },
    /// A path could not be moved because something it refers to was not.
    #[error("{path} was left out because it refers to {}", list(missing))]
    MissingReferences {
        /// The path.
        path: StorePath,
        /// What is missing.
        missing: BTreeSet<StorePath>,
    },
    /// Another process holds a path for too long.
    #[error("{path} has been locked by another process for {seconds} seconds; giving up on it")]
    Busy {
        /// The path.
        path: StorePath,
        /// How long this process waited.
        seconds: u64,
    },
    /// A path was valid, and is not any more, however often it was looked at.
    #[error("{path} was deleted from the store while it was asked for, again and again; try later")]
    Vanished {
        /// The path.
        path: StorePath,
    },
    /// A signing key does not parse.
    #[error("the secret key {}: {reason}", path.display())]
    SecretKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it; never the key.
        reason: String,
    },
    /// A feature that needs a local store is used with another target.
    #[error("cannot use {feature}: {target} is a binary cache; use a local store as the target")]
    NotALocalStore {
        /// The feature.
        feature: &'static str,
        /// The target.
        target: String,
    },
    /// A copy of all paths of a source that cannot list them.
    #[error(
        "cannot copy all paths of {source_name}: it offers no list of its paths; name the paths to \
         copy"
    )]
    Unlistable {
        /// The source.
        source_name: String,
    },
    /// The closure is larger than any real one.
    #[error("the closure has more than {limit} paths; the source is broken or hostile")]
    ClosureTooLarge {
        /// The limit.
        limit: usize,
    },
    /// What is to be moved cannot fit.
    #[error(
        "{0}; nothing was fetched: make room, choose another target, or try all the same with \
             --no-check-space"
    )]
    NoSpace(Box<Shortage>),
    /// The move was interrupted from outside.
    #[error("interrupted; what was registered stays, and another run fetches the rest")]
    Cancelled,
}

/// What an error means for whoever started the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// Something failed.
    Failed,
    /// The network or a server failed.
    Network,
    /// Data is corrupt or not signed by anybody trusted.
    Untrusted,
    /// The disk is full.
    NoSpace,
    /// The user interrupted.
    Interrupted,
    /// The request itself makes no sense.
    Usage,
}

impl ErrorKind {
    /// That of the most severe of several failures.
    pub fn most_severe(failures: &[Error]) -> ErrorKind {
        const MOST_SEVERE_FIRST: [ErrorKind; 5] = [
            ErrorKind::Interrupted,
            ErrorKind::NoSpace,
            ErrorKind::Untrusted,
            ErrorKind::Network,
            ErrorKind::Usage,
        ];
        let has = |kind: &ErrorKind| failures.iter().any(|error| error.kind() == *kind);
        let most_severe = MOST_SEVERE_FIRST.into_iter().find(has);
        most_severe.unwrap_or(ErrorKind::Failed)
    }
}

impl Error {
    /// What the error means for whoever started the move.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::SourceDisabled(error) => error.kind(),
            Error::NoSpace(_) => ErrorKind::NoSpace,
            Error::Store(error) if error.is_out_of_space() => ErrorKind::NoSpace,
            Error::File { source, .. } if is_out_of_space(source) => ErrorKind::NoSpace,
            Error::Store(StoreError::Nar { .. }) => ErrorKind::Untrusted,
            Error::Fetch { .. } | Error::NotACache { .. } => ErrorKind::Network,
            Error::NarInfo { .. }
            | Error::WrongPath { .. }
            | Error::Untrusted { .. }
            | Error::ContentAddressMismatch { .. }
            | Error::Mismatch { .. }
            | Error::Decode { .. } => ErrorKind::Untrusted,
            Error::NoSources
            | Error::InvalidStoreUri { .. }
            | Error::InvalidStorePath { .. }
            | Error::Proxy { .. }
            | Error::NotALocalStore { .. }
            | Error::Unlistable { .. }
            | Error::InvalidPublicKey { .. } => ErrorKind::Usage,
            Error::Cancelled | Error::Store(StoreError::Interrupted) => ErrorKind::Interrupted,
            Error::Store(_)
            | Error::File { .. }
            | Error::StoreDirMismatch { .. }
            | Error::NotFound { .. }
            | Error::GitContentAddress { .. }
            | Error::UnsupportedCompression { .. }
            | Error::MissingReferences { .. }
            | Error::Busy { .. }
            | Error::Vanished { .. }
            | Error::SecretKey { .. }
            | Error::ClosureTooLarge { .. } => ErrorKind::Failed,
        }
    }

    /// A request that failed.
    pub fn fetch(url: &str, reason: impl Into<String>, transient: bool) -> Error {
        Error::Fetch {
            url: url.to_owned(),
            reason: reason.into(),
            transient,
            retry_after: None,
        }
    }

    /// The same, after the last attempt.
    pub fn into_permanent(mut self) -> Error {
        if let Error::Fetch { transient, .. } = &mut self {
            *transient = false;
        }
        self
    }

    /// The path that the error is about: its base name, or its hash part where no more of it is
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
            | Error::ContentAddressMismatch { path, .. }
            | Error::GitContentAddress { path }
            | Error::Mismatch { path, .. }
            | Error::Decode { path, .. }
            | Error::UnsupportedCompression { path, .. }
            | Error::MissingReferences { path, .. }
            | Error::Busy { path, .. }
            | Error::Vanished { path } => Some(path.as_str()),
            Error::NotFound { path, .. } => Some(path),
            Error::WrongPath { wanted, .. } => Some(wanted),
            Error::SourceDisabled(error) => error.path_name(),
            _ => None,
        }
    }

    /// What was fetched when it happened, without credentials.
    pub fn url(&self) -> Option<&str> {
        match self {
            Error::Fetch { url, .. }
            | Error::NotACache { url, .. }
            | Error::NarInfo { url, .. }
            | Error::WrongPath { url, .. }
            | Error::Mismatch { url, .. }
            | Error::Decode { url, .. } => Some(url),
            Error::SourceDisabled(error) => error.url(),
            _ => None,
        }
    }

    /// Whether a server has said when it wants to be asked again.
    pub fn has_retry_after(&self) -> bool {
        matches!(
            self,
            Error::Fetch {
                retry_after: Some(_),
                ..
            }
        )
    }

    /// Whether trying again in a moment makes sense.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Error::Fetch {
                transient: true,
                ..
            }
        )
    }
}

fn explain(signed_by: &[String], trusted: &[String]) -> String {
    let signers = match signed_by {
        [] => "it has no signature".to_owned(),
        names => format!("it is signed by {}", names.join(", ")),
    };
    let keys = match trusted {
        [] => "no key is trusted".to_owned(),
        names => format!("the trusted keys are {}", names.join(", ")),
    };
    if let Some(name) = signed_by.iter().find(|name| trusted.contains(name)) {
        return format!("the signature by {name} does not match what its narinfo says");
    }
    format!(
        "{signers}, {keys}; if you trust its maker, add the key with \
         --extra-trusted-public-keys NAME:KEY, or for good in nix.conf: \
         extra-trusted-public-keys = NAME:KEY"
    )
}

fn list(paths: &BTreeSet<StorePath>) -> String {
    paths
        .iter()
        .map(StorePath::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
