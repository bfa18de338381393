//! A binary cache behind HTTP or HTTPS, as a source.
//!
//! All requests run on one thread with one client, so that connections are kept and shared;
//! what arrives goes to the workers over bounded channels, so that a slow disk slows the
//! network down instead of filling the memory.

use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_format::{CacheInfo, NarInfo, StoreDir};
use reqwest::{Client, Response, StatusCode, Url, Version, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc as channel, oneshot};
use tokio::time::{sleep, timeout};

use super::Answer;
use crate::body::{Body, Chunk};
use crate::error::Error;
use crate::options::Cancel;

/// The thread on which all requests of a move run. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Network {
    handle: Handle,
    client: Client,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    pub(crate) fn start(certificates: Option<&Path>) -> Result<Network, Error> {
        let failed = |reason: String| Error::Fetch {
            url: "(setting up the network)".into(),
            reason,
            transient: false,
        };
        let client = client(certificates)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("floe-network".into())
            .spawn(move || {
                // An error says that the sender is gone, which means the same.
                let _: Result<(), _> = runtime.block_on(stopped);
                // A look-up of a name may hang for long, and nobody needs its answer.
                runtime.shutdown_background();
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Network {
            handle,
            client,
            stop: Mutex::new(Some(stop)),
            thread: Some(thread),
        })
    }
}

impl Network {
    /// Ends all requests: who waits for a body learns that it was abandoned.
    pub(crate) fn abort(&self) {
        let stop = self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(stop) = stop {
            let _: Result<(), ()> = stop.send(());
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.abort();
        if let Some(thread) = self.thread.take() {
            let _: thread::Result<()> = thread.join();
        }
    }
}

/// A cache and how to reach it.
#[derive(Debug)]
pub(crate) struct HttpCache {
    base: String,
    store_dir: StoreDir,
    client: Client,
    handle: Handle,
    /// How many narinfos may be asked for at once.
    questions: Arc<Semaphore>,
}

impl HttpCache {
    /// Reads `nix-cache-info`.
    pub(crate) fn open(base: &str, network: &Network, cancel: &Cancel) -> Result<HttpCache, Error> {
        let url = parse_url(&format!("{base}/nix-cache-info"))?;
        let (client, shown) = (network.client.clone(), redact(&url));
        let (sender, receiver) = mpsc::channel();
        network.handle.spawn(async move {
            let _: Result<(), _> = sender.send(get_small(&client, url).await);
        });
        let no_cache = |reason: String| Error::NotACache {
            url: shown.clone(),
            reason,
        };
        let answer = loop {
            match receiver.recv_timeout(CANCEL_POLL) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => {}
                Err(_) => return Err(Error::Cancelled),
            }
        };
        let (version, text) = answer?.ok_or_else(|| no_cache("it is not there".into()))?;
        if text.trim_ascii_start().starts_with(b"<") {
            // As the page of a hotel's network that wants to be logged in to.
            return Err(no_cache("a web page came instead".into()));
        }
        let info = CacheInfo::parse(&text).map_err(|error| no_cache(error.to_string()))?;
        // HTTP/2 carries many questions on one connection; HTTP/1.1 needs one for each.
        let at_once = if version == Version::HTTP_2 {
            STREAMS_MAX
        } else {
            CONNECTIONS_MAX
        };
        Ok(HttpCache {
            base: base.to_owned(),
            store_dir: info.store_dir,
            client: network.client.clone(),
            handle: network.handle.clone(),
            questions: Arc::new(Semaphore::new(at_once)),
        })
    }

    pub(crate) fn name(&self) -> String {
        Url::parse(&self.base).map_or_else(|_| self.base.clone(), |url| redact(&url))
    }

    pub(crate) fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    /// Asks for a narinfo; the answer goes to `answers`.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        hash_part: &str,
        tag: T,
        answers: &mpsc::Sender<(T, Answer)>,
    ) {
        let url = parse_url(&format!("{}/{hash_part}.narinfo", self.base));
        let (client, dir) = (self.client.clone(), self.store_dir.clone());
        let (questions, answers) = (self.questions.clone(), answers.clone());
        self.handle.spawn(async move {
            // The semaphore is never closed.
            let _permit = questions.acquire_owned().await;
            let answer = match url {
                Ok(url) => narinfo(&client, url, &dir).await,
                Err(error) => Err(error),
            };
            let _: Result<(), _> = answers.send((tag, answer));
        });
    }

    /// Begins to fetch a NAR. The URL of a narinfo is absolute or relative to the cache.
    pub(crate) fn fetch(&self, url: &str, small: bool) -> Result<Body, Error> {
        let url = if url.starts_with("http://") || url.starts_with("https://") {
            parse_url(url)?
        } else {
            parse_url(&format!("{}/{url}", self.base))?
        };
        let client = self.client.clone();
        let shown = redact(&url);
        let (sender, chunks) = channel::channel(if small { 2 } else { CHUNKS_AHEAD });
        self.handle.spawn(async move {
            let sent = match small {
                true => send_whole(&client, url, &sender).await,
                false => send_chunks(&client, url, &sender).await,
            };
            let last = sent.map_or_else(Chunk::Failed, |()| Chunk::End);
            let _: Result<(), _> = sender.send(last).await;
        });
        Ok(Body::Network { chunks, url: shown })
    }
}

async fn narinfo(client: &Client, url: Url, dir: &StoreDir) -> Answer {
    let shown = redact(&url);
    match get_small(client, url).await? {
        None => Ok(None),
        Some((_, text)) => NarInfo::parse(&text, dir)
            .map(Some)
            .map_err(|source| Error::NarInfo {
                url: shown,
                source: Box::new(source),
            }),
    }
}

/// Streams a body, as fast as the worker takes it.
async fn send_chunks(
    client: &Client,
    url: Url,
    chunks: &channel::Sender<Chunk>,
) -> Result<(), Error> {
    let shown = redact(&url);
    let mut response = get_found(client, url).await?;
    while let Some(bytes) = next_bytes(&mut response, &shown).await? {
        if chunks.send(Chunk::Bytes(bytes)).await.is_err() {
            // The worker has given up on this body and says why itself.
            return Ok(());
        }
    }
    Ok(())
}

/// Fetches a small body whole, so that it waits in memory and not in the server's patience.
async fn send_whole(
    client: &Client,
    url: Url,
    chunks: &channel::Sender<Chunk>,
) -> Result<(), Error> {
    let shown = redact(&url);
    let mut response = get_found(client, url).await?;
    let mut whole = BytesMut::new();
    while let Some(bytes) = next_bytes(&mut response, &shown).await? {
        whole.extend_from_slice(&bytes);
        if whole.len() > SMALL_LEN_MAX {
            let reason = format!("the body is larger than its narinfo says ({SMALL_LEN_MAX})");
            return Err(Error::Fetch {
                url: shown,
                reason,
                transient: false,
            });
        }
    }
    let _: Result<(), _> = chunks.send(Chunk::Bytes(whole.freeze())).await;
    Ok(())
}

/// A small document; `None` if the server does not have it.
async fn get_small(client: &Client, url: Url) -> Result<Option<(Version, Vec<u8>)>, Error> {
    let mut attempt = 1;
    loop {
        match try_get_small(client, url.clone()).await {
            Err(error) if error.is_transient() && attempt < ATTEMPTS_MAX => {
                sleep(backoff(attempt)).await;
                attempt += 1;
            }
            answer => return answer,
        }
    }
}

async fn try_get_small(client: &Client, url: Url) -> Result<Option<(Version, Vec<u8>)>, Error> {
    let shown = redact(&url);
    let Some(mut response) = get(client, url).await? else {
        return Ok(None);
    };
    let version = response.version();
    let mut text = Vec::new();
    while let Some(bytes) = next_bytes(&mut response, &shown).await? {
        text.extend_from_slice(&bytes);
        // The parser sees the excess and names its limit.
        if text.len() > NARINFO_LEN_MAX {
            break;
        }
    }
    Ok(Some((version, text)))
}

/// A response that has to be there.
async fn get_found(client: &Client, url: Url) -> Result<Response, Error> {
    let shown = redact(&url);
    get(client, url).await?.ok_or_else(|| Error::Fetch {
        url: shown,
        reason: "the server does not have it, although the narinfo names it".into(),
        transient: false,
    })
}

/// Sends a request; `None` where the server says that there is no such thing.
async fn get(client: &Client, url: Url) -> Result<Option<Response>, Error> {
    let shown = redact(&url);
    let response = match timeout(STALL_TIMEOUT, client.get(url).send()).await {
        Err(_) => return Err(stalled(&shown)),
        Ok(Err(error)) => return Err(failed(&shown, &error)),
        Ok(Ok(response)) => response,
    };
    match response.status() {
        status if status.is_success() => Ok(Some(response)),
        // A bucket that may not be listed answers 403 for what it does not have.
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::GONE => Ok(None),
        status => Err(Error::Fetch {
            url: shown,
            reason: format!("the server answered {status}"),
            transient: matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504),
        }),
    }
}

async fn next_bytes(response: &mut Response, shown: &str) -> Result<Option<Bytes>, Error> {
    match timeout(STALL_TIMEOUT, response.chunk()).await {
        Err(_) => Err(stalled(shown)),
        Ok(chunk) => chunk.map_err(|error| failed(shown, &error)),
    }
}

fn stalled(shown: &str) -> Error {
    let reason = format!("nothing arrived for {} seconds", STALL_TIMEOUT.as_secs());
    Error::Fetch {
        url: shown.to_owned(),
        reason,
        transient: true,
    }
}

/// The whole chain of causes: the first link alone says only that sending failed.
fn failed(shown: &str, error: &reqwest::Error) -> Error {
    let mut reason = String::new();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = cause {
        if !reason.is_empty() {
            reason.push_str(": ");
        }
        reason.push_str(&error.to_string());
        cause = error.source();
    }
    if reason.is_empty() {
        reason = error.to_string();
    }
    // Neither a circle of redirections nor a stranger's certificate gets better by asking again.
    let transient = !error.is_redirect() && !reason.contains("invalid peer certificate");
    Error::Fetch {
        url: shown.to_owned(),
        reason,
        transient,
    }
}

fn parse_url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|error| Error::Location {
        text: without_credentials(text),
        reason: error.to_string(),
    })
}

/// A URL that may be shown: without the password that it may carry.
fn redact(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for URLs that cannot have credentials.
    let _: Result<(), ()> = url.set_username("");
    let _: Result<(), ()> = url.set_password(None);
    url.to_string()
}

/// The same for a text that may be no URL.
pub(crate) fn without_credentials(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", &text[..scheme + 3], &text[at + 1..])
        }
        _ => text.to_owned(),
    }
}

/// How long to wait after an attempt that failed.
pub(crate) fn backoff(attempt: u32) -> Duration {
    BACKOFF * 2_u32.saturating_pow(attempt - 1)
}

fn client(certificates: Option<&Path>) -> Result<Client, Error> {
    let failed = |reason: String| Error::Fetch {
        url: "(setting up TLS)".into(),
        reason,
        transient: false,
    };
    let mut roots = rustls::RootCertStore::empty();
    match certificates {
        Some(path) => {
            let file = |source: rustls::pki_types::pem::Error| {
                failed(format!(
                    "reading certificates from {}: {source}",
                    path.display()
                ))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(file)? {
                roots.add_parsable_certificates([certificate.map_err(file)?]);
            }
        }
        // A machine without certificates may still use caches over plain HTTP.
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("floe/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::limited(REDIRECTS_MAX))
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_initial_stream_window_size(STREAM_WINDOW_LEN)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_LEN)
        .build()
        .map_err(|error| failed(error.to_string()))
}

/// Bodies up to this size, in bytes, are fetched ahead and whole.
pub(crate) const SMALL_LEN_MAX: usize = 1024 * 1024;

/// Chunks of a large body that may wait for the worker; the client makes none larger than
/// about 400 KiB.
const CHUNKS_AHEAD: usize = 8;

/// How much of a body an HTTP/2 server may send before the worker has taken any.
const STREAM_WINDOW_LEN: u32 = 1024 * 1024;

/// The same for all bodies of a connection together. A body that waits for its worker keeps its
/// part of this, so it must be more than all that can wait at once: otherwise the one that is
/// being read starves, and with it all. Small bodies, and large ones for 200 workers, are within.
const CONNECTION_WINDOW_LEN: u32 = 512 * 1024 * 1024;

/// Requests in flight on HTTP/1.1, which are as many connections. Nix's default is 25.
pub(crate) const CONNECTIONS_MAX: usize = 32;

/// Requests in flight on HTTP/2. Servers commonly allow 128 streams.
const STREAMS_MAX: usize = 100;

/// As many as Nix makes by default.
pub(crate) const ATTEMPTS_MAX: u32 = 5;

/// The first pause, as in Nix; each further one is twice as long.
const BACKOFF: Duration = Duration::from_millis(250);

/// Nix's default for `stalled-download-timeout`.
const STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// How soon a raised flag is noticed while nothing arrives.
const CANCEL_POLL: Duration = Duration::from_millis(100);

/// Nix leaves this to the system; a host that does not answer in this time is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// As many as browsers and curl follow.
const REDIRECTS_MAX: usize = 10;
