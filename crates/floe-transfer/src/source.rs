//! The interface of a source: the operations of a copy that read from a binary cache or a store.

mod closure;
mod files;
mod nar_scan;

use std::fmt::Debug;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use floe_format::nar::layout::{FileExtent, Node};
use floe_format::{DrvOutput, NarInfo, PathInfo, Realisation, StoreDir, StorePath};

use crate::backoff::RetryPolicy;
use crate::cancel::{CANCEL_POLL, Cancel};
use crate::error::Error;
use crate::nar_stream::{Body, NarStream};
use crate::path_spec::PathSpec;
pub use closure::{QUERIES_MAX, QueriedClosure};
pub use files::FoundFile;
pub use nar_scan::VisitNar;

/// One source of paths: a binary cache or a store.
///
/// A new kind of source implements the first four methods; the others have defaults. The pipeline
/// calls every method from several threads at once.
pub trait Source: Debug + Send + Sync {
    /// Returns the store URI without credentials.
    fn name(&self) -> String;

    /// Returns the store directory of the source's paths. A source that is still opening returns
    /// the default one.
    fn store_dir(&self) -> &StoreDir;

    /// Returns how the pipeline treats the source. Those of a source that is still opening may
    /// change.
    fn facts(&self) -> SourceFacts {
        SourceFacts::default()
    }

    /// Queries the narinfo of a path. A source that knows paths by their hash parts may reply with
    /// a path of another name. Calls `reply` exactly once, perhaps before it returns.
    ///
    /// A source behind a network must not block here: the pipeline sends hundreds of queries from
    /// one thread.
    fn query(&self, spec: &PathSpec, policy: CachePolicy, reply: NarInfoCallback);

    /// Opens the NAR that a narinfo of this source describes. Must not block on a network.
    fn open_nar(&self, narinfo: &NarInfo, request: NarRequest) -> Result<NarStream, Error>;

    /// Opens a large NAR one turn before its worker is free. Returns `None` if that would take a
    /// connection that another request may need first.
    fn prefetch_nar(
        &self,
        narinfo: &NarInfo,
        request: NarRequest,
    ) -> Option<Result<NarStream, Error>> {
        Some(self.open_nar(narinfo, request))
    }

    /// Returns whether the source could be opened, or `None` while that is not known.
    fn open_result(&self) -> Option<Result<(), Arc<Error>>> {
        Some(Ok(()))
    }

    /// Returns the tree of a path, if the source can tell it without the NAR. It has the size of
    /// the NAR, but the NAR may still differ.
    fn query_tree(&self, _narinfo: &NarInfo) -> Result<Option<Node>, Error> {
        Ok(None)
    }

    /// Opens a file in the tree of a path, if the source can do so without the rest of the NAR. The
    /// body may have more bytes after those of the file.
    fn open_file(&self, _narinfo: &NarInfo, _file: &FileExtent<'_>) -> Result<Option<Body>, Error> {
        Ok(None)
    }

    /// Returns the log of the build that made an output of a derivation, decompressed; `None` if
    /// the source has no log of it.
    fn open_build_log(&self, _derivation: &StorePath) -> Result<Option<Box<dyn Read>>, Error> {
        Ok(None)
    }

    /// Returns the address of a NAR, for messages.
    fn nar_url(&self, narinfo: &NarInfo) -> String {
        if narinfo.url.contains("://") {
            return narinfo.url.clone();
        }
        format!("{}/{}", self.name().trim_end_matches('/'), narinfo.url)
    }

    /// Returns every path of the source, or `None` if the source cannot list its paths.
    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        Ok(None)
    }

    /// Returns the closures of some paths, in any order, if the source can tell without a query for
    /// each path. Paths that it does not have are left out.
    fn closures(&self, _paths: &[StorePath]) -> Result<Option<Vec<StorePath>>, Error> {
        Ok(None)
    }

    /// Returns the realisation of an output, and waits for the reply; `None` if the source does not
    /// have it. No cache between floe and the source may reply.
    fn query_realisation(
        &self,
        _id: &DrvOutput,
        _cancel: &Cancel,
    ) -> Result<Option<Realisation>, Error> {
        Ok(None)
    }

    /// Returns the database of the source, if the source has one that can be read.
    fn as_registry(&self) -> Option<&dyn Registry> {
        None
    }

    /// Returns the daemon of the source that verifies the store, if there is one.
    fn as_verifier(&self) -> Option<&dyn StoreVerifier> {
        None
    }

    /// Waits until the source is open, and returns what the server of a store tells of itself;
    /// `None` if there is no such server.
    fn query_server(&self) -> Result<Option<StoreServer>, Error> {
        Ok(None)
    }

    /// Returns what the first response of an HTTP server has shown of it; `None` before that, and
    /// if there is no such server.
    fn http_server(&self) -> Option<HttpServer> {
        None
    }

    /// Ends all transfers. The source cannot be used afterwards.
    fn abort(&self) {}
}

/// The facts that the server of a store, such as a Nix daemon, tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreServer {
    /// Its version, if it tells.
    pub version: Option<String>,
    /// Whether it trusts this client, if it tells.
    pub trusts_client: Option<bool>,
}

/// An HTTP server, as its first response shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServer {
    /// The version of HTTP, such as `HTTP/2.0`.
    pub version: String,
    /// The end of the validity of its certificate, if it speaks TLS.
    pub certificate_end: Option<SystemTime>,
    /// By how much the clock of the server is ahead of that of this machine, in seconds, if the
    /// server tells the time.
    pub clock_ahead: Option<i64>,
}

/// How the pipeline treats a source.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// Sources with lower numbers are queried first.
    pub priority: i32,
    /// When a failed transfer from this source is repeated, if the source has a policy of its own.
    pub retry_policy: Option<RetryPolicy>,
    /// Whether paths of this source need no signature (`trusted`).
    pub is_trusted: bool,
    /// Whether [`Source::closures`] saves a round trip for each level of references.
    pub tells_closures_in_one_request: bool,
    /// Whether narinfos of this source describe NAR files, as those of a binary cache do.
    pub has_nar_files: bool,
}

impl Default for SourceFacts {
    /// The facts of a binary cache.
    fn default() -> SourceFacts {
        SourceFacts {
            priority: DEFAULT_PRIORITY,
            retry_policy: None,
            is_trusted: false,
            tells_closures_in_one_request: false,
            has_nar_files: true,
        }
    }
}

/// The database of a store.
pub trait Registry {
    /// Returns the entry of a path, with its registration time. Returns `None` for a path that is
    /// not valid.
    fn query_registration(&self, path: &StorePath) -> Result<Option<PathInfo>, Error>;

    /// Calls `visit` with the entry of each valid path, sorted by name, until it breaks. Leaves out
    /// rows that do not parse; an event names them.
    fn for_each_registration(
        &self,
        visit: &mut dyn FnMut(PathInfo) -> ControlFlow<()>,
    ) -> Result<(), Error>;
}

/// The daemon of a store, which verifies the store itself.
pub trait StoreVerifier {
    /// Verifies the whole store, contents too, and perhaps repairs it. Returns whether problems
    /// remain. Events name the problems.
    fn verify_store(&self, repair: bool) -> Result<bool, Error>;
}

/// Receives the result of one query.
pub type NarInfoCallback = Box<dyn FnOnce(NarInfoResult) + Send>;

/// The result of one query.
pub type NarInfoResult = Result<NarInfoReply, Error>;

/// The reply of a source to a query.
#[derive(Debug)]
pub struct NarInfoReply {
    /// The narinfo of the path; `None` if the source does not have the path.
    pub narinfo: Option<NarInfo>,
    /// When the source replied, if the reply comes from the narinfo disk cache and not from the
    /// source itself.
    pub remembered_at: Option<SystemTime>,
}

/// Which entries of the narinfo disk cache a query may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// All of them.
    Use,
    /// Only narinfos, not entries for missing paths.
    HitsOnly,
    /// None: the source itself is queried.
    Bypass,
}

/// How a NAR is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NarRequest {
    /// How its body is kept.
    pub buffering: Buffering,
    /// Whether another source may have the NAR. Then the source gives up early, after one attempt
    /// or a few seconds without bytes.
    pub can_fail_over: bool,
}

impl NarRequest {
    /// Returns the request for a NAR that only this source has.
    pub fn streamed() -> NarRequest {
        NarRequest {
            buffering: Buffering::Stream,
            can_fail_over: false,
        }
    }
}

/// How the body of a NAR is kept until its worker reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// The whole body is fetched into memory. It has at most [`SMALL_LEN_MAX`] bytes.
    Whole,
    /// Only a few chunks are fetched. Then the connection waits for the worker.
    Stream,
}

impl From<Option<NarInfo>> for NarInfoReply {
    /// Makes a reply of the source itself.
    fn from(narinfo: Option<NarInfo>) -> NarInfoReply {
        NarInfoReply {
            narinfo,
            remembered_at: None,
        }
    }
}

impl dyn Source + '_ {
    /// Whether the paths of the source are for a store directory. True for a source that is still
    /// opening.
    pub fn is_for(&self, dir: &StoreDir) -> bool {
        !matches!(self.open_result(), Some(Ok(()))) || self.store_dir() == dir
    }

    /// Queries the source itself for a path, and waits for the reply. Returns
    /// `None` if the source does not have the path.
    pub fn query_path_info(
        &self,
        spec: &PathSpec,
        cancel: &Cancel,
    ) -> Result<Option<NarInfo>, Error> {
        self.query_path_info_within(None, spec, cancel)
    }

    /// As [`query_path_info`](#method.query_path_info), but waits no longer than the timeout.
    ///
    /// Errors: also if there was no reply within this time.
    pub fn query_path_info_within(
        &self,
        timeout: Option<Duration>,
        spec: &PathSpec,
        cancel: &Cancel,
    ) -> Result<Option<NarInfo>, Error> {
        let began = Instant::now();
        let (sender, receiver) = mpsc::channel();
        let reply = Box::new(move |result| {
            // The receiver is gone only after a cancellation.
            let _: Result<(), _> = sender.send(result);
        });
        self.query(spec, CachePolicy::Bypass, reply);
        loop {
            match receiver.recv_timeout(CANCEL_POLL) {
                Ok(result) => return Ok(result?.narinfo),
                Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => {
                    if timeout.is_some_and(|timeout| began.elapsed() > timeout) {
                        return Err(Error::fetch(&self.name(), "it does not reply", true));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(Error::Cancelled),
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Internal(NO_REPLY)),
            }
        }
    }
}

/// A source that drops a callback.
pub(crate) const NO_REPLY: &str = "a source does not reply to a query";

/// The priority of a source that declares none: Nix's default of the setting `priority`, from
/// `store-api.hh`.
pub const DEFAULT_PRIORITY: i32 = 0;

/// The largest body that is prefetched whole, in bytes.
pub const SMALL_LEN_MAX: usize = 1024 * 1024;

/// Returns how many large bodies may wait for a worker, for a number of workers. Fewer than the
/// minimum would leave connections idle while the congestion windows of others grow.
pub fn large_prefetch_max(workers: usize) -> usize {
    workers.max(LARGE_PREFETCH_MIN)
}

const LARGE_PREFETCH_MIN: usize = 4;
