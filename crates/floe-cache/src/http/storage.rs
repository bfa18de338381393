//! The storage of a binary cache behind HTTP or HTTPS.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use floe_transfer::url::{parse_url, redact, redact_credentials};
use floe_transfer::{Body, Buffering, CachePolicy, Error, HttpServer, NarRequest, RetryPolicy};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url, Version};
use tokio::sync::{OwnedSemaphorePermit, mpsc as channel, watch};

use super::adaptive_limit::{AdaptiveLimit, QueryPermit};
use super::content_encoding::ContentEncodings;
use super::download;
use super::get::{get_small, open_connection};
use super::network_body::{Chunk, NetworkBody};
use super::put::PlainPut;
use super::reply_guard::ReplyGuard;
use super::shared::HttpCacheShared;
use super::upload::{DeleteObjects, PutObject};
use crate::binary_cache::CACHE_INFO;
use crate::error::CacheError;
use crate::network::limiter::RequestPermits;
use crate::network::{ClientCertificate, Network};
use crate::request::{
    CacheClient, Message, RATE_WINDOW_MAX, ReplyTime, ReplyWait, Request, RequestOptions,
    RequestTarget,
};
use crate::storage::{Found, GetCallback, GetResult, ListStorage, QueryLimit, ReadStorage};

/// The storage of a cache behind HTTP.
#[derive(Debug)]
pub struct HttpStorage {
    pub(super) shared: Arc<HttpCacheShared>,
    /// Writes objects.
    pub(super) server: Arc<dyn PutObject>,
    /// Lists objects, if the kind of server can.
    list: Option<Arc<dyn ListStorage>>,
    /// Deletes many objects at once, if the kind of server can.
    pub(super) deletion: Option<Arc<dyn DeleteObjects>>,
}

impl HttpStorage {
    /// Makes the storage of a cache; sends nothing yet.
    ///
    /// Errors: [`Error::InvalidStoreUri`] if the URL is invalid, [`Error::File`] if the client
    /// certificate cannot be used.
    pub fn new(
        url: &str,
        certificate: Option<&ClientCertificate>,
        requests: &RequestOptions,
        network: &Network,
    ) -> Result<HttpStorage, Error> {
        HttpStorage::with_client(url, CacheClient::new(network, requests, certificate)?)
    }

    /// Makes the storage of a cache with a client; sends nothing yet.
    ///
    /// Errors: [`Error::InvalidStoreUri`] if the URL is invalid.
    pub(crate) fn with_client(url: &str, client: CacheClient) -> Result<HttpStorage, Error> {
        let base = parse_url(url)?;
        let shared = HttpCacheShared {
            base,
            client: client.into(),
            query_limit: OnceLock::new(),
            consecutive_failures: AtomicU32::new(0),
            disabled_by: OnceLock::new(),
            failed_writes: AtomicU32::new(0),
            writes_disabled_by: Mutex::default(),
            has_bulk_connections: AtomicBool::new(false),
            reply_time: ReplyTime::default(),
            nar_reply_time: ReplyTime::default(),
            is_aborted: watch::Sender::new(false),
        };
        let shared = Arc::new(shared);
        Ok(HttpStorage {
            server: Arc::new(PlainPut::new(
                shared.clone(),
                HeaderMap::new(),
                ContentEncodings::default(),
            )),
            shared,
            list: None,
            deletion: None,
        })
    }

    /// Sets the compressions of small objects.
    pub fn with_encodings(self, encodings: ContentEncodings) -> HttpStorage {
        let put = PlainPut::new(self.shared.clone(), HeaderMap::new(), encodings);
        HttpStorage {
            server: Arc::new(put),
            ..self
        }
    }

    /// Replaces the ways of writing, listing and deleting by those of an object store.
    pub(crate) fn with_object_store(
        self,
        server: Arc<dyn PutObject>,
        list: Arc<dyn ListStorage>,
        deletion: Arc<dyn DeleteObjects>,
    ) -> HttpStorage {
        HttpStorage {
            shared: self.shared,
            server,
            list: Some(list),
            deletion: Some(deletion),
        }
    }

    /// Returns the part that requests use.
    pub(crate) fn shared(&self) -> &Arc<HttpCacheShared> {
        &self.shared
    }

    fn nar_target(&self, url: &str) -> Result<RequestTarget, Error> {
        let parsed = if url.starts_with("http://") || url.starts_with("https://") {
            parse_url(url)
        } else {
            self.shared.object_url(url)
        };
        let url = parsed.map_err(|error| CacheError::NarUrl {
            source_name: self.name(),
            url: redact_credentials(url),
            reason: match error {
                Error::InvalidStoreUri { reason, .. } => reason,
                error => error.to_string(),
            },
        })?;
        Ok(RequestTarget::of_cache(&self.shared.base, url))
    }

    fn start_fetch(
        &self,
        target: RequestTarget,
        (nar, part): (NarRequest, Range<u64>),
        permits: Option<(RequestPermits, OwnedSemaphorePermit)>,
    ) -> Body {
        let shared = self.shared.clone();
        let url = redact(&target.url);
        let (sender, chunks) = channel::channel(match nar.buffering {
            Buffering::Whole => 2,
            Buffering::Stream => CHUNK_QUEUE_LEN,
        });
        let (held, prefetch_permit) = permits.unzip();
        self.shared.spawn(async move {
            let transfer = shared.transfer(target, held, (nar, part), &sender);
            let Some(sent) = download::until_closed(&sender, transfer).await else {
                return;
            };
            let last = sent.map_or_else(Chunk::Failed, |()| Chunk::End);
            let _: Result<(), _> = sender.send(last).await;
        });
        Body::Chunks(Box::new(NetworkBody {
            chunks,
            url,
            prefetch_permit,
        }))
    }
}

impl ReadStorage for HttpStorage {
    fn name(&self) -> String {
        redact(&self.shared.base)
    }

    fn http_server(&self) -> Option<HttpServer> {
        self.shared.client.server.get().cloned()
    }

    fn get(&self, name: &str, _: CachePolicy, reply: GetCallback) {
        let (shared, name) = (self.shared.clone(), name.to_owned());
        let reply = ReplyGuard::new(reply);
        let request = async move { reply.send(shared.get(&name).await) };
        self.shared.spawn(request);
    }

    fn open(&self, url: &str, request: NarRequest) -> Result<Body, Error> {
        Ok(self.start_fetch(self.nar_target(url)?, (request, WHOLE), None))
    }

    fn open_part(&self, url: &str, part: Range<u64>) -> Result<Body, Error> {
        let request = NarRequest::streamed();
        Ok(self.start_fetch(self.nar_target(url)?, (request, part), None))
    }

    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        let target = match self.nar_target(url) {
            Ok(target) => target,
            Err(error) => return Some(Err(error)),
        };
        let limits = &self.shared.client.network.limits;
        let permits = limits.try_acquire_prefetch(&target.url)?;
        let body = self.start_fetch(target, (request, WHOLE), Some(permits));
        Some(Ok(body))
    }

    fn retry_policy(&self) -> Option<RetryPolicy> {
        Some(self.shared.client.options.retry.clone())
    }

    fn set_query_limit(&self, limit: QueryLimit) {
        let options = &self.shared.client.options;
        // The disk cache may remember HTTP/2 from a time when the user allowed it.
        let uses_http2 = limit.uses_http2 && options.http2;
        if uses_http2 {
            let limits = &self.shared.client.network.limits;
            limits.set_http2(&self.shared.base, Version::HTTP_2);
        }
        // HTTP/2 carries many queries on one connection; HTTP/1.1 needs a connection for each.
        let max = if uses_http2 {
            STREAMS_MAX
        } else {
            options.connections.min(QUERIES_MAX)
        };
        let first = if limit.want_mass_query {
            max
        } else {
            LOW_CONCURRENCY
        };
        // A second limit would come only with a second `nix-cache-info`.
        let _: Result<(), _> = self.shared.query_limit.set(AdaptiveLimit::new(first, max));
    }

    fn disabled_by(&self) -> Option<Arc<Error>> {
        self.shared.disabled_by.get().cloned()
    }

    fn forget(&self, _: &str) {}

    fn as_list(&self) -> Option<&dyn ListStorage> {
        self.list.as_deref()
    }

    fn abort(&self) {
        self.shared.is_aborted.send_replace(true);
    }
}

/// A part that is the whole body.
const WHOLE: Range<u64> = 0..u64::MAX;

/// Whether a server that decodes a path first would find `..` in it.
fn climbs(path: &str) -> bool {
    let decoded = percent_decode_str(path).collect::<Vec<u8>>();
    let mut parts = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    parts.any(|part| part == b"..")
}

impl HttpCacheShared {
    /// Returns the URL of an object. A narinfo may name the object.
    ///
    /// Errors: [`Error::InvalidStoreUri`], also for a name that leads out of the cache.
    pub(super) fn object_url(&self, name: &str) -> Result<Url, Error> {
        let base = self.base.as_str().trim_end_matches('/');
        let url = match &self.client.dialect {
            None => parse_url(&format!("{base}/{name}")),
            Some(dialect) => parse_url(&format!("{base}/{}", dialect.name(name))),
        }?;
        // The parser has resolved `..`. The user's login or signature is for the cache alone.
        let below = self.base.path().trim_end_matches('/');
        let rest = url.path().strip_prefix(below);
        if rest.is_some_and(|rest| rest.starts_with('/') && !climbs(rest)) {
            return Ok(url);
        }
        Err(Error::InvalidStoreUri {
            text: redact_credentials(name),
            reason: "it leads out of the cache".into(),
        })
    }

    /// Sends the body of a NAR to its worker.
    async fn transfer(
        self: &Arc<HttpCacheShared>,
        target: RequestTarget,
        held: Option<RequestPermits>,
        (nar, part): (NarRequest, Range<u64>),
        chunks: &channel::Sender<Chunk>,
    ) -> Result<(), Error> {
        let (options, limits) = (&self.client.options, &self.client.network.limits);
        let stall_timeout = options.stall_timeout;
        let (timeout, rate_window) = if nar.can_fail_over {
            (FAILOVER_AFTER, FAILOVER_RATE_WINDOW)
        } else {
            (stall_timeout, RATE_WINDOW_MAX)
        };
        let (timeout, rate_window) = (timeout.min(stall_timeout), rate_window.min(stall_timeout));
        let held = match held {
            Some(held) => held,
            None => limits.acquire(&target.url).await,
        };
        self.open_bulk_connections(&target.url);
        let mut request = Request {
            target,
            held,
            // A body on the connection of the queries would delay their replies.
            bulk_client: Some(self.client.clients.choose_bulk(nar.buffering)),
            head_wait: ReplyWait::new(&self.nar_reply_time, timeout),
            rest_wait: ReplyWait::for_rest(&self.reply_time, timeout),
            rate_window,
            message: Message::default(),
        };
        match nar.buffering {
            Buffering::Whole => {
                download::send_small_body(self, &mut request, nar.can_fail_over, chunks).await
            }
            Buffering::Stream => {
                download::stream_body(self, &mut request, (nar.can_fail_over, part), chunks).await
            }
        }
    }

    /// Opens all bulk connections with the first body, so that later bodies do not wait for them.
    fn open_bulk_connections(self: &Arc<HttpCacheShared>, url: &Url) {
        let network = &self.client.network;
        let is_own_host = self.base.origin() == url.origin();
        if !is_own_host
            || !network.limits.uses_http2(url)
            || self.has_bulk_connections.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let Ok(info) = self.object_url(CACHE_INFO) else {
            return;
        };
        for client in self.client.clients.all_bulk() {
            let (shared, info) = (self.clone(), info.clone());
            network.handle.spawn(async move {
                // A failure concerns the body that uses the connection later.
                let _: Result<_, Error> = open_connection(&shared, info, client).await;
            });
        }
    }

    /// Waits until another query may be in flight.
    pub(super) async fn query_permit(&self) -> Option<QueryPermit<'_>> {
        match self.query_limit.get() {
            Some(limit) => Some(limit.acquire().await),
            None => None,
        }
    }

    /// Gets a small object, with retries, unless the cache is disabled.
    async fn get(&self, name: &str) -> GetResult {
        let _permit = self.query_permit().await;
        if let Some(error) = self.disabled_by.get() {
            return Err(Error::SourceDisabled(error.clone()));
        }
        let url = self.object_url(name)?;
        let response = get_small(self, url).await;
        Ok(match self.record_result(response)? {
            Ok(object) => Found::Object(object),
            Err(_) => Found::missing("it is not there"),
        })
    }

    /// Counts failures, and disables the cache after [`FAILURES_MAX`] in a row.
    fn record_result<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let Err(error) = result else {
            self.consecutive_failures.store(0, Ordering::Relaxed);
            return result;
        };
        if matches!(error, Error::Cancelled) {
            return Err(error);
        }
        // A bucket that must not be listed answers so for each path that it does not have.
        if error.status() == Some(StatusCode::FORBIDDEN.as_u16()) {
            return Err(error);
        }
        if self.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return Err(error);
        }
        let error = Arc::new(error);
        // Only the first error is kept.
        let _: Result<(), _> = self.disabled_by.set(error.clone());
        Err(Error::SourceDisabled(error))
    }
}

/// How many chunks of a large body may wait for the worker. The client makes chunks of at most
/// about 400 KiB.
const CHUNK_QUEUE_LEN: usize = 8;

/// How long a body may send nothing if another source may have it.
const FAILOVER_AFTER: Duration = Duration::from_secs(3);

/// The time after which the rate of such a body is too low.
const FAILOVER_RATE_WINDOW: Duration = Duration::from_secs(10);

/// How many requests may be in flight over HTTP/2. Servers commonly allow 128 streams.
const STREAMS_MAX: usize = 100;

/// The largest number of queries at once. A user often may not have more open files.
const QUERIES_MAX: usize = 500;

/// How many queries a cache gets at once at first, if it does not want more (`WantMassQuery`).
const LOW_CONCURRENCY: usize = 4;

/// How many queries in a row must fail, each after all its attempts, before the cache is disabled.
/// One or two broken narinfos are not a reason.
const FAILURES_MAX: u32 = 3;
