//! Requests on their way to a worker.

use std::sync::Arc;
use std::time::Instant;

use crate::caches::narinfo_cache::CachedNarInfo;
use crate::caches::tree_identity::TreeIdentity;
use crate::finish::access_log::LoggedRequest;
use crate::http::request::{Request, ResponseMode};
use crate::http::route::Route;

/// A request that a worker responds to, independent of the bytes that it came in.
#[derive(Debug)]
pub(crate) struct DeferredRequest {
    pub(crate) route: Route,
    pub(crate) mode: ResponseMode,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) accepts_zstd: bool,
    /// The NAR that is asked for, once it is looked up.
    pub(crate) nar: Option<NarTarget>,
    /// When the network thread has read the request.
    pub(crate) received: Instant,
    /// The parts for the access log, if there is one.
    pub(crate) logged: Option<LoggedRequest<'static>>,
}

/// The NAR that a URL names.
#[derive(Clone, Debug)]
pub(crate) struct NarTarget {
    pub(crate) narinfo: Arc<CachedNarInfo>,
    /// Whether the URL has the NAR hash, so that it will never mean another NAR.
    pub(crate) is_immutable: bool,
    /// The tree on disk when the request began.
    pub(crate) identity: TreeIdentity,
}

impl DeferredRequest {
    pub(crate) fn new(
        request: &Request<'_>,
        (route, nar): (Route, Option<NarTarget>),
        (mode, received): (ResponseMode, Instant),
        logged: Option<LoggedRequest<'static>>,
    ) -> DeferredRequest {
        let owned = |field: Option<&str>| field.map(str::to_owned);
        DeferredRequest {
            route,
            mode,
            range: owned(request.range),
            if_range: owned(request.if_range),
            if_none_match: owned(request.if_none_match),
            accepts_zstd: request.accepts_zstd,
            nar,
            received,
            logged,
        }
    }
}
