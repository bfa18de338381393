//! A binary cache behind HTTP or HTTPS.
//!
//! All requests run on one thread with one client, so that requests share connections. Bodies go to
//! the workers over bounded channels: a slow disk slows the network down instead of filling the
//! memory.

mod adaptive_limit;
mod auth;
mod client;
mod connect_timer;
mod dns;
mod download;
mod failure;
mod limiter;
mod network;
mod network_body;
mod redirect;
mod reply_guard;
mod reply_wait;
mod request;
mod request_options;
mod tls;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use floe_transfer::store_uri::absolute;
use floe_transfer::url::{parse_url, redact, redact_credentials};
use floe_transfer::{
    Body, Buffering, CachePolicy, Error, IgnoredParameter, NarRequest, OpenTarget, RetryPolicy,
    Source, SourceContext, StoreConfig, StoreUri, TargetContext, UriParameters,
};
use reqwest::{StatusCode, Url, Version};
use tokio::sync::{OwnedSemaphorePermit, mpsc as channel};

use crate::binary_cache::{BinaryCache, CACHE_INFO, CacheOptions};
use crate::disk_cached_storage::DiskCachedStorage;
use crate::storage::{Found, GetCallback, GetResult, ListStorage, QueryLimit, ReadStorage};
use adaptive_limit::AdaptiveLimit;
use limiter::RequestPermits;
use network::HttpContext;
pub use network::Network;
use network_body::{Chunk, NetworkBody};
use redirect::RequestTarget;
use reply_guard::ReplyGuard;
use reply_wait::{ReplyTime, ReplyWait};
use request::{RATE_WINDOW_MAX, Request, get_small, open_connection};
pub use request_options::RequestOptions;
pub use tls::ClientCertificate;

/// A binary cache behind HTTP or HTTPS, as its URI describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCacheUri {
    /// The URL, without a slash at the end.
    pub url: String,
    /// The options of the cache as a source.
    pub options: CacheOptions,
    /// The client certificate for the server (`tls-certificate`, `tls-private-key`).
    pub certificate: Option<ClientCertificate>,
    /// The options of requests to this cache.
    pub requests: RequestOptions,
    /// The parameters without effect that the user should know of.
    pub ignored: Vec<IgnoredParameter>,
}

impl HttpCacheUri {
    /// Reads the parts of an `http://` or `https://` URI, with Nix's parameters.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri) -> Result<HttpCacheUri, String> {
        let address = uri.address.trim_end_matches('/');
        if address.is_empty() || address.starts_with('/') || address.contains('#') {
            return Err("it has no host, or it has a fragment".into());
        }
        let mut cache = HttpCacheUri {
            url: format!("{}://{address}", uri.scheme),
            options: CacheOptions::default(),
            certificate: None,
            requests: RequestOptions::default(),
            ignored: Vec::new(),
        };
        let (mut certificate, mut private_key) = (None, None);
        for (name, value) in &uri.parameters {
            match &**name {
                "tls-certificate" => certificate = Some(absolute(value)?),
                "tls-private-key" => private_key = Some(absolute(value)?),
                _ if cache.options.set(name, value)? => {}
                _ if cache.requests.set(name, value)? => {}
                _ => cache.ignored.extend(PARAMETERS.ignored(uri, name)),
            }
        }
        cache.certificate = match (certificate, private_key) {
            (None, None) => None,
            (None, Some(_)) => return Err("tls-private-key needs tls-certificate".into()),
            // One file may hold both.
            (Some(certificate), private_key) => Some(ClientCertificate {
                private_key: private_key.unwrap_or_else(|| certificate.clone()),
                certificate,
            }),
        };
        Ok(cache)
    }
}

impl StoreConfig for HttpCacheUri {
    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let network = context.session.service::<Network>()?;
        let disk_cache = network.disk_cache();
        let storage = HttpStorage::new(self, network)?;
        let storage: Arc<dyn ReadStorage> = match disk_cache {
            Some(disk_cache) => {
                let url = self.to_string();
                Arc::new(DiskCachedStorage::new(storage, disk_cache, &url))
            }
            None => Arc::new(storage),
        };
        Ok(Arc::new(BinaryCache::open(storage, &self.options, context)))
    }

    fn open_target(&self, _: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        Err(Error::InvalidStoreUri {
            text: self.to_string(),
            reason: "floe does not upload over HTTP yet; copy to file://DIR".into(),
        })
    }

    fn is_trusted(&self) -> bool {
        self.options.trusted
    }

    fn ignored_parameters(&self) -> &[IgnoredParameter] {
        &self.ignored
    }
}

/// The parameters of a binary cache behind HTTP. Those that concern writing are irrelevant, because
/// floe only reads from such a cache.
const PARAMETERS: UriParameters = UriParameters {
    used: &[
        "connect-timeout",
        "priority",
        "retry-attempts",
        "retry-delay",
        "retry-delay-rate-limited",
        "retry-max-delay",
        "tls-certificate",
        "tls-private-key",
        "trusted",
        "want-mass-query",
    ],
    irrelevant: &[
        "compression",
        "compression-level",
        "index-debug-info",
        "log-compression",
        "ls-compression",
        "narinfo-compression",
        "parallel-compression",
        "path-info-cache-size",
        "secret-key",
        "secret-keys",
        "system-features",
        "write-nar-listing",
    ],
    unsupported: &["local-nar-cache", "store"],
};

/// The storage of a cache behind HTTP.
#[derive(Debug)]
pub struct HttpStorage {
    shared: Arc<HttpCacheShared>,
    /// The thread of all requests. The drop of its last owner ends the thread.
    network: Arc<Network>,
}

/// The part that tasks on the network thread use.
#[derive(Debug)]
struct HttpCacheShared {
    /// The URL of the cache.
    base: Url,
    context: Arc<HttpContext>,
    /// How many narinfos may be requested at once. Unset until `nix-cache-info` has come.
    query_limit: OnceLock<AdaptiveLimit>,
    /// Queries in a row that failed after all their attempts.
    consecutive_failures: AtomicU32,
    /// The error after which no query is sent any more.
    disabled_by: OnceLock<Arc<Error>>,
    /// Whether the connections of bodies over HTTP/2 were opened.
    has_bulk_connections: AtomicBool,
    /// The usual time of a reply with a small object.
    reply_time: ReplyTime,
    /// The usual time until a NAR begins. A server may have to compress it first.
    nar_reply_time: ReplyTime,
}

impl HttpStorage {
    /// Makes the storage of a cache; sends nothing yet.
    ///
    /// Errors: [`Error::InvalidStoreUri`] if the URI contains no URL, [`Error::File`] if the client
    /// certificate cannot be used.
    pub fn new(uri: &HttpCacheUri, network: Arc<Network>) -> Result<HttpStorage, Error> {
        let base = parse_url(&uri.url)?;
        let context = network.context.for_cache(uri)?;
        let shared = HttpCacheShared {
            base,
            context,
            query_limit: OnceLock::new(),
            consecutive_failures: AtomicU32::new(0),
            disabled_by: OnceLock::new(),
            has_bulk_connections: AtomicBool::new(false),
            reply_time: ReplyTime::default(),
            nar_reply_time: ReplyTime::default(),
        };
        Ok(HttpStorage {
            shared: Arc::new(shared),
            network,
        })
    }

    fn nar_target(&self, url: &str) -> Result<RequestTarget, Error> {
        let parsed = match url.starts_with("http://") || url.starts_with("https://") {
            true => parse_url(url),
            false => self.shared.object_url(url),
        };
        let url = parsed.map_err(|error| Error::NarUrl {
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
        nar: NarRequest,
        permits: Option<(RequestPermits, OwnedSemaphorePermit)>,
    ) -> Body {
        let shared = self.shared.clone();
        let url = redact(&target.url);
        let (sender, chunks) = channel::channel(match nar.buffering {
            Buffering::Whole => 2,
            Buffering::Stream => CHUNK_QUEUE_LEN,
        });
        let (held, prefetch_permit) = permits.unzip();
        self.shared.context.handle.spawn(async move {
            let transfer = shared.transfer(target, held, nar, &sender);
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

    fn get(&self, name: &str, _: CachePolicy, reply: GetCallback) {
        let (shared, name) = (self.shared.clone(), name.to_owned());
        let reply = ReplyGuard::new(reply);
        let request = async move { reply.send(shared.get(&name).await) };
        self.shared.context.handle.spawn(request);
    }

    fn open(&self, url: &str, request: NarRequest) -> Result<Body, Error> {
        Ok(self.start_fetch(self.nar_target(url)?, request, None))
    }

    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        let target = match self.nar_target(url) {
            Ok(target) => target,
            Err(error) => return Some(Err(error)),
        };
        let permits = self
            .shared
            .context
            .limits
            .try_acquire_prefetch(&target.url)?;
        let body = self.start_fetch(target, request, Some(permits));
        Some(Ok(body))
    }

    fn retry_policy(&self) -> Option<RetryPolicy> {
        Some(self.shared.context.options.retry.clone())
    }

    fn set_query_limit(&self, limit: QueryLimit) {
        let options = &self.shared.context.options;
        // The disk cache may remember HTTP/2 from a time when the user allowed it.
        let uses_http2 = limit.uses_http2 && options.http2;
        if uses_http2 {
            let limits = &self.shared.context.limits;
            limits.set_http2(&self.shared.base, Version::HTTP_2);
        }
        // HTTP/2 carries many queries on one connection; HTTP/1.1 needs a connection for each.
        let max = match uses_http2 {
            true => STREAMS_MAX,
            false => options.connections.min(QUERIES_MAX),
        };
        let first = match limit.want_mass_query {
            true => max,
            false => LOW_CONCURRENCY,
        };
        // A second limit would come only with a second `nix-cache-info`.
        let _: Result<(), _> = self.shared.query_limit.set(AdaptiveLimit::new(first, max));
    }

    fn disabled_by(&self) -> Option<Arc<Error>> {
        self.shared.disabled_by.get().cloned()
    }

    fn forget(&self, _: &str) {}

    fn as_list(&self) -> Option<&dyn ListStorage> {
        None
    }

    fn abort(&self) {
        self.network.abort();
    }
}

impl HttpCacheShared {
    fn object_url(&self, name: &str) -> Result<Url, Error> {
        let base = self.base.as_str().trim_end_matches('/');
        parse_url(&format!("{base}/{name}"))
    }

    /// Sends the body of a NAR to its worker.
    async fn transfer(
        self: &Arc<HttpCacheShared>,
        target: RequestTarget,
        held: Option<RequestPermits>,
        nar: NarRequest,
        chunks: &channel::Sender<Chunk>,
    ) -> Result<(), Error> {
        let HttpContext {
            options, limits, ..
        } = &*self.context;
        let stall_timeout = options.stall_timeout;
        let (attempts, timeout, rate_window) = match nar.can_fail_over {
            true => (1, FAILOVER_AFTER, FAILOVER_RATE_WINDOW),
            false => (options.retry.attempts, stall_timeout, RATE_WINDOW_MAX),
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
            bulk_client: Some(self.context.clients.choose_bulk(nar.buffering)),
            head_wait: ReplyWait::new(&self.nar_reply_time, timeout),
            rest_wait: ReplyWait::for_rest(&self.reply_time, timeout),
            rate_window,
        };
        match nar.buffering {
            Buffering::Whole => download::send_small_body(self, &mut request, chunks).await,
            Buffering::Stream => download::stream_body(self, &mut request, attempts, chunks).await,
        }
    }

    /// Opens all bulk connections with the first body, so that later bodies do not wait for them.
    fn open_bulk_connections(self: &Arc<HttpCacheShared>, url: &Url) {
        let HttpContext {
            clients,
            limits,
            handle,
            ..
        } = &*self.context;
        let is_own_host = self.base.origin() == url.origin();
        if !is_own_host
            || !limits.uses_http2(url)
            || self.has_bulk_connections.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let Ok(info) = self.object_url(CACHE_INFO) else {
            return;
        };
        for client in clients.all_bulk() {
            let (shared, info) = (self.clone(), info.clone());
            handle.spawn(async move {
                // A failure concerns the body that uses the connection later.
                let _: Result<_, Error> = open_connection(&shared, info, client).await;
            });
        }
    }

    /// Gets a small object, with retries, unless the cache is disabled.
    async fn get(&self, name: &str) -> GetResult {
        let _permit = match self.query_limit.get() {
            Some(limit) => Some(limit.acquire().await),
            None => None,
        };
        if let Some(error) = self.disabled_by.get() {
            return Err(Error::SourceDisabled(error.clone()));
        }
        let url = self.object_url(name)?;
        let response = get_small(self, url).await;
        Ok(match self.record_result(response)? {
            // Probably a captive portal.
            Ok(object) if name == CACHE_INFO && is_web_page(&object.contents) => {
                Found::missing("a web page came instead")
            }
            Ok(object) => Found::Object(object),
            // Some servers also answer 403 for an object that they do not have.
            Err(status @ StatusCode::FORBIDDEN) => Found::missing(format!(
                "the server answered {status}: it is not there, or not for this user"
            )),
            Err(_) => Found::missing("it is not there"),
        })
    }

    /// Counts failures, and disables the cache after [`FAILURES_MAX`] in a row.
    fn record_result<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let Err(error) = result else {
            self.consecutive_failures.store(0, Ordering::Relaxed);
            return result;
        };
        if self.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return Err(error);
        }
        let error = Arc::new(error);
        // Only the first error is kept.
        let _: Result<(), _> = self.disabled_by.set(error.clone());
        Err(Error::SourceDisabled(error))
    }
}

fn is_web_page(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"<")
}

impl std::fmt::Display for HttpCacheUri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&redact_credentials(&self.url))
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
/// One or two broken narinfos are no reason.
const FAILURES_MAX: u32 = 3;
