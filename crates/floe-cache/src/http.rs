//! A binary cache behind HTTP or HTTPS, as a source.
//!
//! All requests run on one thread with one client, so that connections are kept and shared;
//! what arrives goes to the workers over bounded channels, so that a slow disk slows the
//! network down instead of filling the memory.

pub(crate) mod auth;
mod client;
mod dns;
mod download;
mod limiter;
mod network;
mod redirect;
mod reply_guard;
pub(crate) mod request;
mod tls;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use floe_format::{CacheInfo, NarInfo, StoreDir};
use reqwest::{StatusCode, Url, Version};
use tokio::sync::{Semaphore, mpsc as channel, watch};

use crate::narinfo_disk_cache::NarInfoDiskCache;
use floe_transfer::url::{parse_url, redact, redact_credentials};
use floe_transfer::{
    Body, Buffering, CachePolicy, Chunk, DEFAULT_PRIORITY, Error, HttpCacheUri, NarInfoCallback,
    NarInfoReply, NarInfoResult, NarStream, PrefetchPermit, Source,
};
use limiter::{ConnectionLimiter, RequestPermit};
use network::HttpContext;
pub use network::Network;
use redirect::RequestTarget;
use reply_guard::ReplyGuard;
use request::get_small;

/// A cache and how to reach it.
#[derive(Debug)]
pub struct HttpCache {
    shared: Arc<HttpCacheShared>,
    /// What stands for the store directory until the cache has said which it is.
    default_dir: StoreDir,
    /// The thread of all requests. Dropped last: the drop of its last owner ends the thread.
    network: Arc<Network>,
}

/// What tasks of the network share.
#[derive(Debug)]
struct HttpCacheShared {
    location: HttpCacheUri,
    /// Its address, parsed.
    base: Url,
    /// Its address without credentials, by which it is remembered: everybody may read that file.
    key: String,
    context: Arc<HttpContext>,
    /// What the cache says of itself, or why it cannot be used.
    metadata: OnceLock<Result<CacheMetadata, Arc<Error>>>,
    /// Whether that is known.
    metadata_known: watch::Sender<bool>,
    disk_cache: Option<Arc<NarInfoDiskCache>>,
    limiter: ConnectionLimiter,
    /// Questions in a row that were made as often as may be, and failed.
    consecutive_failures: AtomicU32,
    /// Why it is not asked any more.
    disabled_by: OnceLock<Arc<Error>>,
}

/// What a cache says of itself.
#[derive(Debug)]
struct CacheMetadata {
    info: CacheInfo,
    /// How many narinfos may be asked for at once.
    query_limit: Semaphore,
}

impl HttpCache {
    /// Begins to ask for `nix-cache-info`, and says on `settled` when it is known whether the cache
    /// can be used.
    ///
    /// Errors: [`Error::InvalidStoreUri`] if the address is no URL.
    pub fn start_opening(
        location: &HttpCacheUri,
        network: &Arc<Network>,
        disk_cache: Option<Arc<NarInfoDiskCache>>,
        opened_signal: mpsc::Sender<()>,
    ) -> Result<HttpCache, Error> {
        let shared = Arc::new(HttpCacheShared {
            location: location.clone(),
            base: parse_url(&location.url)?,
            key: redact_credentials(&location.url),
            context: network.context(),
            metadata: OnceLock::new(),
            metadata_known: watch::Sender::new(false),
            disk_cache,
            limiter: ConnectionLimiter::new(network.context().options.connections),
            consecutive_failures: AtomicU32::new(0),
            disabled_by: OnceLock::new(),
        });
        let opening = shared.clone();
        let reply = ReplyGuard::new(move |metadata| {
            // Nobody else sets it.
            let _: Result<(), _> = opening.metadata.set(metadata);
            opening.metadata_known.send_replace(true);
            let _: Result<(), _> = opened_signal.send(());
        });
        let opening = shared.clone();
        shared
            .context
            .spawn(async move { reply.send(opening.fetch_metadata().await.map_err(Arc::new)) });
        Ok(HttpCache {
            shared,
            default_dir: StoreDir::default(),
            network: network.clone(),
        })
    }

    fn nar_target(&self, url: &str) -> Result<RequestTarget, Error> {
        let base = &self.shared.location.url;
        let url = match url.starts_with("http://") || url.starts_with("https://") {
            true => parse_url(url)?,
            false => parse_url(&format!("{base}/{url}"))?,
        };
        Ok(RequestTarget::named_by_cache(&self.shared.base, url))
    }

    fn start_fetch(
        &self,
        target: RequestTarget,
        buffering: Buffering,
        permits: Option<(RequestPermit, PrefetchPermit)>,
    ) -> Body {
        let shared = self.shared.clone();
        let shown = redact(&target.url);
        let (sender, chunks) = channel::channel(match buffering {
            Buffering::Whole => 2,
            Buffering::Stream => CHUNK_QUEUE_LEN,
        });
        let (permit, prefetch_permit) = permits.unzip();
        self.shared.context.spawn(async move {
            let transfer = async {
                // Kept through pauses as well: a worker that has memory for the body's decoder must
                // not wait for others, who may wait for that memory.
                let _permit = match permit {
                    Some(permit) => permit,
                    None => shared.limiter.acquire(&target.url).await,
                };
                match buffering {
                    Buffering::Whole => {
                        download::send_small_body(&shared.context, &shared.limiter, target, &sender)
                            .await
                    }
                    Buffering::Stream => {
                        download::stream_body(&shared.context, &shared.limiter, target, &sender)
                            .await
                    }
                }
            };
            let Some(sent) = download::until_closed(&sender, transfer).await else {
                return;
            };
            let last = sent.map_or_else(Chunk::Failed, |()| Chunk::End);
            let _: Result<(), _> = sender.send(last).await;
        });
        Body::Network {
            chunks,
            url: shown,
            prefetch_permit,
        }
    }
}

impl Source for HttpCache {
    fn name(&self) -> String {
        redact(&self.shared.base)
    }

    fn store_dir(&self) -> &StoreDir {
        match self.shared.metadata.get() {
            Some(Ok(metadata)) => &metadata.info.store_dir,
            _ => &self.default_dir,
        }
    }

    fn query(&self, hash_part: &str, policy: CachePolicy, reply: NarInfoCallback) {
        let (shared, part) = (self.shared.clone(), hash_part.to_owned());
        let reply = ReplyGuard::new(reply);
        self.shared.context.spawn(async move {
            reply.send(shared.query_narinfo(&part, policy).await);
        });
    }

    /// The URL of the narinfo is absolute or relative to the cache.
    fn open_nar(&self, narinfo: &NarInfo, buffering: Buffering) -> Result<NarStream, Error> {
        let target = self.nar_target(&narinfo.url)?;
        Ok(NarStream::Body(self.start_fetch(target, buffering, None)))
    }

    fn prefetch_nar(&self, narinfo: &NarInfo) -> Option<Result<NarStream, Error>> {
        let target = match self.nar_target(&narinfo.url) {
            Ok(target) => target,
            Err(error) => return Some(Err(error)),
        };
        let permits = self.shared.limiter.try_acquire_prefetch(&target.url)?;
        let body = self.start_fetch(target, Buffering::Stream, Some(permits));
        Some(Ok(NarStream::Body(body)))
    }

    fn priority(&self) -> i32 {
        let own = || self.shared.metadata.get()?.as_ref().ok()?.info.priority;
        self.shared
            .location
            .priority
            .or_else(own)
            .unwrap_or(DEFAULT_PRIORITY)
    }

    fn is_trusted(&self) -> bool {
        self.shared.location.trusted
    }

    fn open_result(&self) -> Option<Result<(), Arc<Error>>> {
        let metadata = self.shared.metadata.get()?;
        Some(metadata.as_ref().map(|_| ()).map_err(Arc::clone))
    }

    fn abort(&self) {
        self.network.abort();
    }
}

impl HttpCacheShared {
    async fn fetch_metadata(&self) -> Result<CacheMetadata, Error> {
        let base = &self.location.url;
        let url = parse_url(&format!("{base}/nix-cache-info"))?;
        let shown = redact(&url);
        let no_cache = |reason: String| Error::NotACache {
            url: shown.clone(),
            reason,
        };
        let known = self
            .disk_cache
            .as_ref()
            .and_then(|all| all.cache_info(&self.key));
        let is_fresh = known.is_none();
        let (is_http2, text) = match known {
            // What is remembered may be of a time when a user wanted it.
            Some((was_http2, text)) => (was_http2 && self.context.options.http2, text),
            None => {
                let found = get_small(&self.context, &self.limiter, url).await?;
                let found = found.map_err(|status| no_cache(missing_info_reason(status)))?;
                (found.version == Some(Version::HTTP_2), found.text)
            }
        };
        if text.trim_ascii_start().starts_with(b"<") {
            // As the page of a hotel's network that wants to be logged in to.
            return Err(no_cache("a web page came instead".into()));
        }
        let info = CacheInfo::parse(&text).map_err(|error| no_cache(error.to_string()))?;
        if let (true, Some(all)) = (is_fresh, &self.disk_cache) {
            all.insert_cache_info(&self.key, is_http2, &text);
        }
        let wants_many = self
            .location
            .want_mass_query
            .unwrap_or(info.want_mass_query);
        if is_http2 {
            self.limiter.set_http2(self.base.clone());
        }
        // HTTP/2 carries many questions on one connection; HTTP/1.1 needs one for each.
        let at_once = match (wants_many, is_http2) {
            (false, _) => LOW_CONCURRENCY,
            (true, true) => STREAMS_MAX,
            (true, false) => self.context.options.connections,
        };
        Ok(CacheMetadata {
            info,
            query_limit: Semaphore::new(at_once.clamp(1, QUERIES_MAX)),
        })
    }

    async fn query_narinfo(&self, hash_part: &str, policy: CachePolicy) -> NarInfoResult {
        let mut known = self.metadata_known.subscribe();
        // The sender is as old as this.
        let _: Result<_, _> = known.wait_for(|metadata_known| *metadata_known).await;
        let metadata = match self.metadata.get() {
            Some(Ok(metadata)) => metadata,
            Some(Err(error)) => return Err(Error::SourceDisabled(error.clone())),
            None => return Err(Error::Cancelled),
        };
        // The semaphore is never closed.
        let _permit = metadata.query_limit.acquire().await;
        if let Some(error) = self.disabled_by.get() {
            return Err(Error::SourceDisabled(error.clone()));
        }
        if let Some(known) = self.query_disk_cache(metadata, hash_part, policy) {
            return Ok(known);
        }
        let base = &self.location.url;
        let url = parse_url(&format!("{base}/{hash_part}.narinfo"))?;
        let shown = redact(&url);
        let found = self.record_result(get_small(&self.context, &self.limiter, url).await)?;
        let text = found.ok().map(|found| found.text);
        let parsed = text.as_deref().map(|text| {
            NarInfo::parse(text, &metadata.info.store_dir).map_err(|source| Error::NarInfo {
                url: shown,
                source: Box::new(source),
            })
        });
        let parsed = parsed.transpose();
        match (&self.disk_cache, &parsed) {
            (Some(all), Ok(_)) => all.insert_narinfo(&self.key, hash_part, text.as_deref()),
            (Some(all), Err(_)) => all.remove_narinfo(&self.key, hash_part),
            (None, _) => {}
        }
        Ok(parsed?.map(NarInfoReply::from))
    }

    /// What counts of that which was answered before; `None` if the cache has to be asked.
    fn query_disk_cache(
        &self,
        metadata: &CacheMetadata,
        hash_part: &str,
        policy: CachePolicy,
    ) -> Option<Option<NarInfoReply>> {
        let all = self.disk_cache.as_ref()?;
        if policy == CachePolicy::Bypass {
            // Not even where the cache says nothing now.
            all.remove_narinfo(&self.key, hash_part);
            return None;
        }
        let Some(text) = all.narinfo(&self.key, hash_part)? else {
            return (policy == CachePolicy::Use).then_some(None);
        };
        // The file may have gone bad, or another version of floe have written it: the cache is
        // asked, and its answer takes the place of this.
        let narinfo = NarInfo::parse(&text, &metadata.info.store_dir).ok()?;
        Some(Some(NarInfoReply {
            narinfo,
            from_disk_cache: true,
        }))
    }

    /// Who fails again and again, whatever is asked for, is not asked any more.
    fn record_result<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        let error = match answer {
            Ok(found) => {
                self.consecutive_failures.store(0, Ordering::Relaxed);
                return Ok(found);
            }
            Err(error) => error,
        };
        if self.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return Err(error);
        }
        let error = Arc::new(error);
        // The first reason is as good as any.
        let _: Result<(), _> = self.disabled_by.set(error.clone());
        Err(Error::SourceDisabled(error))
    }
}

/// Why there is no `nix-cache-info`. Some servers say that it may not be had where it is not there.
fn missing_info_reason(status: StatusCode) -> String {
    match status {
        StatusCode::FORBIDDEN => {
            format!("the server answered {status}: it is not there, or not for whoever asks")
        }
        _ => "it is not there".into(),
    }
}

/// Chunks of a large body that may wait for the worker; the client makes none larger than
/// about 400 KiB.
const CHUNK_QUEUE_LEN: usize = 8;

/// Requests in flight on HTTP/2. Servers commonly allow 128 streams.
const STREAMS_MAX: usize = 100;

/// What "as many as you like" means: more open files than that a user often may not have.
const QUERIES_MAX: usize = 500;

/// Questions at once to a cache that does not want to be asked for much (`WantMassQuery`).
const LOW_CONCURRENCY: usize = 4;

/// Questions in a row that fail, each after all its attempts, before a cache counts as lost: one
/// broken narinfo, or two, are no reason.
const FAILURES_MAX: u32 = 3;
