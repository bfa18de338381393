//! The errors of a copy, with the path and the URL as data.

mod cause;
mod facts;
mod store_failure;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use floe_format::{Compression, StorePath};
use floe_store::{StoreError, is_out_of_space};

use crate::disk_space::Shortage;
use crate::error_kind::ErrorKind;
use cause::{describe_io, explain, list};
pub use store_failure::StoreFailure;

/// A failure of a copy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The local store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A failure that only one kind of store has.
    #[error("{0}")]
    OfKind(Box<dyn StoreFailure>),
    /// A request or a transfer failed.
    #[error("cannot fetch {url}: {reason}")]
    Fetch {
        /// The URL without credentials.
        url: String,
        /// The cause.
        reason: String,
        /// Whether the same request may succeed a moment later.
        transient: bool,
        /// The status with which the server refused the request.
        status: Option<u16>,
        /// The delay that the server demands before the next request.
        retry_after: Option<Duration>,
    },
    /// A file of a binary cache cannot be read.
    #[error("cannot {action} {}: {}", path.display(), describe_io(source))]
    UnreadableFile {
        /// A verb with its object, such as `open the NAR`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The NAR of a path cannot be fetched. The cause does not name the path.
    #[error("cannot copy {path}: {source}")]
    Nar {
        /// The path.
        path: StorePath,
        /// The cause.
        source: Box<Error>,
    },
    /// An operation on a file of a cache failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The operation: a verb and, if necessary, the kind of file.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A source has paths for another store directory.
    #[error(
        "cannot copy from {source_name}: its paths are for {found}, but the target is for \
         {wanted}; try --store-dir {found}"
    )]
    StoreDirMismatch {
        /// The source.
        source_name: String,
        /// Its store directory.
        found: String,
        /// The store directory of the target.
        wanted: String,
    },
    /// A text is not the URI of a store or binary cache.
    #[error("cannot use {text:?} as a store or binary cache: {reason}")]
    InvalidStoreUri {
        /// The text without credentials.
        text: String,
        /// The cause.
        reason: String,
    },
    /// A text is not a store path.
    #[error(
        "cannot parse {text:?} as a store path: {reason}; give {store_dir}/HASH-NAME, HASH-NAME or \
         HASH"
    )]
    InvalidStorePath {
        /// The text as given.
        text: String,
        /// The cause.
        reason: String,
        /// The expected store directory.
        store_dir: String,
    },
    /// A text is not a public key. It may be a secret key that was given by mistake, so the error
    /// keeps only its name.
    #[error("cannot parse the public key that begins with {name:?}: {reason}")]
    InvalidPublicKey {
        /// The text before the first colon.
        name: String,
        /// The cause and its remedy.
        reason: &'static str,
    },
    /// No source has a path.
    #[error("cannot find {path} in {}", sources.join(", "))]
    NotFound {
        /// The base name or hash part.
        path: String,
        /// The sources that were queried.
        sources: Vec<String>,
    },
    /// A source has a path with the requested hash part, but with another name.
    #[error(
        "cannot find {wanted} in {source_name}: the path with this hash part is {found}; check the \
         name"
    )]
    WrongName {
        /// The requested path.
        wanted: String,
        /// The path that the source has.
        found: StorePath,
        /// The source.
        source_name: String,
    },
    /// The request names no source.
    #[error("cannot fetch anything: there is no source; name a cache or a store with --from")]
    NoSources,
    /// The error that disabled a source.
    #[error(transparent)]
    SourceDisabled(Arc<Error>),
    /// A narinfo describes another path than the requested one.
    #[error("cannot use the narinfo {url}: it is for {found}, not for {wanted}")]
    WrongPath {
        /// The source.
        source_name: String,
        /// Its URL.
        url: String,
        /// The path that it describes.
        found: StorePath,
        /// The requested path.
        wanted: String,
    },
    /// No trusted key has signed a path.
    #[error(
        "cannot trust {path} from {source_name}: {}",
        explain(signed_by, trusted)
    )]
    Untrusted {
        /// The path.
        path: StorePath,
        /// The source that offered it.
        source_name: String,
        /// The names of the keys that signed it.
        signed_by: Vec<String>,
        /// The names of the trusted keys.
        trusted: Vec<String>,
    },
    /// Fewer trusted keys than needed have signed a path.
    #[error(
        "cannot trust {path} from {source_name}: fewer than {needed} trusted keys have signed it; \
         try floe copy-sigs, or floe sign"
    )]
    TooFewSignatures {
        /// The path.
        path: StorePath,
        /// The source that offered it.
        source_name: String,
        /// The number of needed keys.
        needed: usize,
    },
    /// No trusted key has signed which path an output has.
    #[error(
        "cannot trust {path} as the output {output} from {source_name}: {}",
        explain(signed_by, trusted)
    )]
    UntrustedRealisation {
        /// The output.
        output: String,
        /// Its path.
        path: StorePath,
        /// The source.
        source_name: String,
        /// The keys that have signed it.
        signed_by: Vec<String>,
        /// The trusted keys.
        trusted: Vec<String>,
    },
    /// The content address of a path belongs to another path.
    #[error(
        "cannot trust {path} from {source_name}: its content address {ca} belongs to another path"
    )]
    ContentAddressMismatch {
        /// The path.
        path: StorePath,
        /// The source that offered it.
        source_name: String,
        /// The content address.
        ca: String,
    },
    /// Contents with zeros in place of self-references have the same content address, and no
    /// trusted key has signed the path.
    #[error(
        "cannot trust {path} from {url}: no trusted key has signed it, and its content address, \
         which Nix 2.17 to 2.34 makes, does not cover where the path refers to itself; try a \
         source that signs it, or --no-check-sigs if you trust this source completely"
    )]
    WeakContentAddress {
        /// The path.
        path: StorePath,
        /// The URL of the NAR.
        url: String,
    },
    /// A NAR or its file does not match the narinfo.
    #[error("cannot accept {path} from {url}: the {what} is {actual}, not {expected}")]
    Mismatch {
        /// The path.
        path: StorePath,
        /// The URL of the NAR.
        url: String,
        /// The property that differs, such as `NAR hash`.
        what: &'static str,
        /// The value in the narinfo.
        expected: String,
        /// The actual value.
        actual: String,
    },
    /// A NAR that is read without being written is invalid.
    #[error("cannot read {path} from {url}: {reason}")]
    InvalidNar {
        /// The path.
        path: StorePath,
        /// The URL of the NAR.
        url: String,
        /// The cause.
        reason: String,
    },
    /// A body cannot be decompressed.
    #[error("cannot decompress {path} from {url} as {}: {reason}", compression.name())]
    Decode {
        /// The path.
        path: StorePath,
        /// The URL of the NAR.
        url: String,
        /// The compression in the narinfo.
        compression: Compression,
        /// The cause.
        reason: String,
    },
    /// A file of this machine cannot be added to a store.
    #[error("cannot add {}: {reason}", file.display())]
    NotAddable {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A path uses a feature of Nix that floe does not have.
    #[error("cannot copy {path}: floe does not support {feature}")]
    Unsupported {
        /// The path.
        path: StorePath,
        /// The compression or the kind of content address.
        feature: String,
    },
    /// A reference of a path could not be copied.
    #[error("cannot copy {path}: its references are missing: {}", list(missing))]
    MissingReferences {
        /// The path.
        path: StorePath,
        /// The missing references.
        missing: BTreeSet<StorePath>,
    },
    /// Another process has locked a path for too long.
    #[error(
        "cannot register {path}: another process has locked it for {seconds} seconds; try again \
         later"
    )]
    Busy {
        /// The path.
        path: StorePath,
        /// How long this process has waited, in seconds.
        seconds: u64,
    },
    /// A collector deleted a path again in every round.
    #[error("cannot copy {path}: it kept disappearing from the store; try again later")]
    Vanished {
        /// The path.
        path: StorePath,
    },
    /// The target has no substituters of its own.
    #[error(
        "cannot use --substitute-on-destination: {target} has no substituters of its own; leave \
         the option out"
    )]
    NotARemoteStore {
        /// The target.
        target: String,
    },
    /// A feature that needs a local store is used with another target.
    #[error("cannot use {feature}: {target} is a binary cache; use a local store as the target")]
    NotALocalStore {
        /// The feature.
        feature: &'static str,
        /// The target.
        target: String,
    },
    /// A request for all paths of a source that cannot list them.
    #[error("cannot use all paths of {source_name}: it offers no list of them; name the paths")]
    Unlistable {
        /// The source.
        source_name: String,
    },
    /// A binary cache cannot be collected.
    #[error("cannot collect the cache: {reason}")]
    NotCollected {
        /// The cause and its remedy.
        reason: String,
    },
    /// The closure is larger than the user allows.
    #[error(
        "cannot use the closure: it has more than {limit} {what}; if the source does not invent \
         paths, raise the limit with --option max-closure-paths N"
    )]
    ClosureTooLarge {
        /// The things of which there are too many.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The target's file system has too little space.
    #[error(
        "cannot copy: {0}; nothing was installed; free some space, choose another target, or try \
         --no-check-space"
    )]
    NoSpace(Box<Shortage>),
    /// The system has no thread left for the transfer.
    #[error("cannot start a thread: {0}; try --jobs 1, or a higher limit of processes (ulimit -u)")]
    Thread(#[source] io::Error),
    /// The copy was cancelled.
    #[error("interrupted; registered paths stay valid, and another run fetches the rest")]
    Cancelled,
    /// The copy no longer needs the path, because a reference failed. No user sees this.
    #[error("the path is no longer needed")]
    NotNeeded,
    /// A part of floe, or a store of the caller, did not do what its interface promises.
    #[error("cannot continue: {0}; this is a fault of floe, please report it")]
    Internal(&'static str),
}

impl ErrorKind {
    /// Returns the kind of the most severe failure.
    pub fn most_severe(failures: &[Error]) -> ErrorKind {
        let kinds = failures.iter().map(Error::kind);
        kinds.max().unwrap_or(ErrorKind::Failed)
    }
}

impl Error {
    /// Returns the meaning of the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::SourceDisabled(error) => error.kind(),
            Error::NoSpace(_) => ErrorKind::NoSpace,
            Error::Store(error) => ErrorKind::of_store(error),
            Error::File { source, .. } if is_out_of_space(source) => ErrorKind::NoSpace,
            Error::Nar { source, .. } => source.kind(),
            Error::OfKind(failure) => failure.kind(),
            Error::Fetch { .. } | Error::UnreadableFile { .. } => ErrorKind::Network,
            Error::WrongPath { .. }
            | Error::Untrusted { .. }
            | Error::TooFewSignatures { .. }
            | Error::UntrustedRealisation { .. }
            | Error::ContentAddressMismatch { .. }
            | Error::WeakContentAddress { .. }
            | Error::Mismatch { .. }
            | Error::InvalidNar { .. }
            | Error::Decode { .. } => ErrorKind::Untrusted,
            Error::NoSources
            | Error::InvalidStoreUri { .. }
            | Error::InvalidStorePath { .. }
            | Error::StoreDirMismatch { .. }
            | Error::NotALocalStore { .. }
            | Error::NotARemoteStore { .. }
            | Error::Unlistable { .. }
            | Error::InvalidPublicKey { .. } => ErrorKind::Usage,
            Error::Cancelled => ErrorKind::Interrupted,
            Error::File { .. }
            | Error::NotFound { .. }
            | Error::NotCollected { .. }
            | Error::WrongName { .. }
            | Error::NotAddable { .. }
            | Error::Unsupported { .. }
            | Error::MissingReferences { .. }
            | Error::Busy { .. }
            | Error::Vanished { .. }
            | Error::Thread(_)
            | Error::NotNeeded
            | Error::Internal(_)
            | Error::ClosureTooLarge { .. } => ErrorKind::Failed,
        }
    }

    /// Makes the error of a request.
    pub fn fetch(url: &str, reason: impl Into<String>, transient: bool) -> Error {
        Error::Fetch {
            url: url.to_owned(),
            reason: reason.into(),
            transient,
            status: None,
            retry_after: None,
        }
    }

    /// Adds the path whose NAR cannot be fetched, if the error does not name it.
    pub fn about_nar_of(self, path: &StorePath) -> Error {
        match self {
            Error::Fetch { .. } | Error::UnreadableFile { .. } => Error::Nar {
                path: path.clone(),
                source: Box::new(self),
            },
            error => error,
        }
    }

    /// Marks the error as permanent, after the last attempt.
    pub fn into_permanent(mut self) -> Error {
        match &mut self {
            Error::Fetch { transient, .. } => *transient = false,
            Error::OfKind(failure) => failure.set_permanent(),
            _ => {}
        }
        self
    }
}
