//! What all threads share, and a request on its way to a worker.

use std::path::PathBuf;
use std::sync::Arc;

use floe_store::{StoreError, StoreLayout};

use crate::caches::compressed_nar_cache::CompressedNarCache;
use crate::caches::nar_cache::NarCache;
use crate::caches::narinfo_cache::{CachedNarInfo, NarInfoCache, StoreSession};
use crate::config::Compress;
use crate::http::request::{Method, Request};
use crate::http::response::Response;
use crate::http::route::{HashPart, Route};

/// What all threads share.
pub(crate) struct Context {
    pub(crate) layout: StoreLayout,
    pub(crate) log_dir: PathBuf,
    pub(crate) prefix: String,
    pub(crate) compress: Compress,
    pub(crate) narinfos: NarInfoCache,
    pub(crate) nars: Arc<NarCache>,
    pub(crate) compressed_nars: Option<CompressedNarCache>,
    /// The text of `nix-cache-info`.
    pub(crate) cache_info: Arc<str>,
    /// The text of `/`.
    pub(crate) root: Arc<str>,
    pub(crate) warn: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A request that is no longer bound to the bytes it came in.
#[derive(Clone, Debug)]
pub(crate) struct DeferredRequest {
    pub(crate) route: Route,
    /// Whether only the head is wanted.
    pub(crate) head_only: bool,
    pub(crate) is_http10: bool,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) accepts_zstd: bool,
    /// The head as it came, where it is to be logged.
    pub(crate) head: Option<Box<[u8]>>,
}

impl Context {
    /// The valid path with that hash part, for those who may wait.
    pub(crate) fn find(
        &self,
        session: &mut StoreSession,
        hash: HashPart,
    ) -> Result<Option<Arc<CachedNarInfo>>, StoreError> {
        self.narinfos.find(session, hash)
    }

    /// The answer to a request that failed. The reason is for the operator.
    pub(crate) fn error_response(&self, error: &StoreError) -> Response {
        (self.warn)(&error.to_string());
        match is_absence(error) {
            true => Response::not_found("the files of this path are missing\n"),
            false => Response::internal_error(),
        }
    }
}

impl DeferredRequest {
    pub(crate) fn new(route: Route, request: &Request<'_>) -> DeferredRequest {
        let owned = |field: Option<&str>| field.map(str::to_owned);
        // Ranges are defined for GET alone (RFC 9110, section 14.2).
        let range = request.range.filter(|_| request.method == Method::Get);
        DeferredRequest {
            route,
            head_only: request.method == Method::Head,
            is_http10: request.is_http10,
            range: owned(range),
            if_range: owned(request.if_range),
            if_none_match: owned(request.if_none_match),
            accepts_zstd: request.accepts_zstd,
            head: None,
        }
    }
}

/// Whether an error means that files are not there.
fn is_absence(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
