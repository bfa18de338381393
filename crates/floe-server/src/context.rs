//! The settings and caches of a server that handlers use.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use floe_store::{StoreError, StoreLayout};
use parking_lot::RwLock;

use crate::body::budget::Budget;
use crate::body::readahead::ReadaheadBudget;
use crate::caches::compressed_nar_cache::CompressedNarCache;
use crate::caches::nar_cache::NarCache;
use crate::caches::narinfo_cache::NarInfoCache;
use crate::config::Compress;
use crate::http::response::Response;
use crate::landing_page::LandingPage;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::receive::Receiver;

/// Shared by all threads.
pub(crate) struct Context {
    pub(crate) layout: StoreLayout,
    pub(crate) log_dir: PathBuf,
    /// The directory of the binary cache whose pins are served.
    pub(crate) pins: Option<PathBuf>,
    /// The place that receives uploads, if the server receives any.
    pub(crate) receiver: Option<Arc<dyn Receiver>>,
    /// Whether each client needs a login.
    pub(crate) needs_login: AtomicBool,
    /// The prefix of every route, such as `/cache`.
    pub(crate) prefix: String,
    pub(crate) compress: Compress,
    pub(crate) narinfos: NarInfoCache,
    pub(crate) nars: NarCache,
    pub(crate) readahead: ReadaheadBudget,
    /// The number of decoders for build logs.
    pub(crate) log_decoders: Budget,
    /// The number of encoders for `--compress always`.
    pub(crate) encoders: Budget,
    pub(crate) compressed_nars: Option<CompressedNarCache>,
    /// The text of `/nix-cache-info`.
    pub(crate) cache_info: RwLock<Arc<str>>,
    /// The page at `/`, if there is one.
    pub(crate) landing_page: RwLock<Option<Arc<LandingPage>>>,
    /// The clients that may look at the paths of the store.
    pub(crate) browsers: Browsers,
    /// How many pages about the paths are made at once.
    pub(crate) browsing: Budget,
    /// Whether clients on TCP use TLS.
    pub(crate) uses_tls: bool,
    /// The port of the first TCP address for clients.
    pub(crate) https_port: Option<u16>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Readiness,
    pub(crate) warn: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The clients that may look at the paths of the store.
#[derive(Debug)]
pub(crate) struct Browsers {
    /// Whether all who may read may.
    pub(crate) are_readers: AtomicBool,
    /// Whether there are logins, of which some may have the scope for it.
    pub(crate) are_logins: bool,
}

impl Browsers {
    /// Whether anyone may.
    pub(crate) fn exist(&self) -> bool {
        self.are_logins || self.are_readers.load(Ordering::Relaxed)
    }
}

impl Context {
    /// Does a step for a connection. A panic costs the client its connection, but other clients
    /// are still served. `None` if there was one.
    pub(crate) fn catch_panic<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(step));
        if done.is_err() {
            (self.warn)("closing a connection: its request caused a panic; please report it");
        }
        done.ok()
    }

    /// Returns the response to a request that failed, and warns the operator of the reason.
    pub(crate) fn error_response(&self, error: &StoreError) -> Response {
        (self.warn)(&error.to_string());
        match error {
            StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Response::not_found("the files of this path are missing\n")
            }
            _ => Response::internal_error(),
        }
    }
}
