//! A binary cache behind HTTP or HTTPS, as a source.
//!
//! All requests run on one thread with one client, so that connections are kept and shared;
//! what arrives goes to the workers over bounded channels, so that a slow disk slows the
//! network down instead of filling the memory.

pub(crate) mod address;
mod client;
mod logins;
mod network;
pub(crate) mod request;
mod transfer;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use floe_format::{CacheInfo, NarInfo, StoreDir};
use reqwest::{Url, Version};
use tokio::sync::{Semaphore, mpsc as channel};

use super::Answer;
use crate::body::{Body, Chunk};
use crate::error::Error;
use crate::options::Cancel;
use address::{parse_url, redact};
pub(crate) use network::Network;
use network::Web;
use request::get_small;

/// A cache and how to reach it.
#[derive(Debug)]
pub(crate) struct HttpCache {
    base: String,
    store_dir: StoreDir,
    web: Arc<Web>,
    /// How many narinfos may be asked for at once.
    questions: Arc<Semaphore>,
}

impl HttpCache {
    /// Reads `nix-cache-info`.
    pub(crate) fn open(base: &str, network: &Network, cancel: &Cancel) -> Result<HttpCache, Error> {
        let url = parse_url(&format!("{base}/nix-cache-info"))?;
        let (web, shown) = (network.web(), redact(&url));
        let (sender, receiver) = mpsc::channel();
        web.spawn({
            let web = web.clone();
            async move {
                let _: Result<(), _> = sender.send(get_small(&web, url).await);
            }
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
        let at_once = match version {
            Version::HTTP_2 => STREAMS_MAX,
            _ => web.options.connections,
        };
        Ok(HttpCache {
            base: base.to_owned(),
            store_dir: info.store_dir,
            web,
            questions: Arc::new(Semaphore::new(at_once.clamp(1, QUESTIONS_MAX))),
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
        let (web, dir) = (self.web.clone(), self.store_dir.clone());
        let (questions, answers) = (self.questions.clone(), answers.clone());
        self.web.spawn(async move {
            // The semaphore is never closed.
            let _permit = questions.acquire_owned().await;
            let answer = match url {
                Ok(url) => narinfo(&web, url, &dir).await,
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
        let web = self.web.clone();
        let shown = redact(&url);
        let (sender, chunks) = channel::channel(if small { 2 } else { CHUNKS_AHEAD });
        self.web.spawn(async move {
            let sent = match small {
                true => transfer::send_whole(&web, url, &sender).await,
                false => transfer::send_chunks(&web, url, &sender).await,
            };
            let last = sent.map_or_else(Chunk::Failed, |()| Chunk::End);
            let _: Result<(), _> = sender.send(last).await;
        });
        Ok(Body::Network { chunks, url: shown })
    }
}

async fn narinfo(web: &Web, url: Url, dir: &StoreDir) -> Answer {
    let shown = redact(&url);
    match get_small(web, url).await? {
        None => Ok(None),
        Some((_, text)) => NarInfo::parse(&text, dir)
            .map(Some)
            .map_err(|source| Error::NarInfo {
                url: shown,
                source: Box::new(source),
            }),
    }
}

/// Bodies up to this size, in bytes, are fetched ahead and whole.
pub(crate) const SMALL_LEN_MAX: usize = 1024 * 1024;

/// Chunks of a large body that may wait for the worker; the client makes none larger than
/// about 400 KiB.
const CHUNKS_AHEAD: usize = 8;

/// Small bodies that are fetched ahead, whatever the number of connections: 32 MiB at most.
pub(crate) const SMALL_AHEAD_MAX: usize = 32;

/// Requests in flight on HTTP/2. Servers commonly allow 128 streams.
const STREAMS_MAX: usize = 100;

/// What "as many as you like" means: more open files than that a user often may not have.
const QUESTIONS_MAX: usize = 500;

/// How soon a raised flag is noticed while nothing arrives.
const CANCEL_POLL: Duration = Duration::from_millis(100);
