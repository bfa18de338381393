//! A binary cache behind HTTP or HTTPS, as a source.
//!
//! All requests run on one thread with one client, so that connections are kept and shared;
//! what arrives goes to the workers over bounded channels, so that a slow disk slows the
//! network down instead of filling the memory.

mod client;
mod connections;
pub(crate) mod logins;
mod names;
mod network;
mod promise;
mod redirect;
pub(crate) mod request;
mod transfer;
mod trust;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};

use floe_format::{CacheInfo, NarInfo, StoreDir};
use reqwest::{StatusCode, Url, Version};
use tokio::sync::{Semaphore, mpsc as channel, watch};

use super::remembered::Remembered;
use super::{Answer, Belief, PRIORITY, Told};
use crate::body::{Ahead, Body, Chunk};
use crate::error::Error;
use crate::location::HttpLocation;
use crate::url::{parse_url, redact, without_credentials};
use connections::{Connections, Leave};
pub(crate) use network::Network;
use network::Web;
use promise::Promise;
use redirect::Goal;
use request::get_small;

/// A cache and how to reach it.
#[derive(Debug)]
pub(crate) struct HttpCache {
    link: Arc<Link>,
    /// What stands for the store directory until the cache has said which it is.
    default_dir: StoreDir,
}

/// What tasks of the network share.
#[derive(Debug)]
struct Link {
    location: HttpLocation,
    /// Its address, parsed.
    base: Url,
    /// Its address without credentials, by which it is remembered: everybody may read that file.
    key: String,
    web: Arc<Web>,
    /// What the cache says of itself, or why it cannot be used.
    about: OnceLock<Result<About, Arc<Error>>>,
    /// Whether that is known.
    is_settled: watch::Sender<bool>,
    remembered: Option<Arc<Remembered>>,
    connections: Connections,
    /// Questions in a row that were made as often as may be, and failed.
    failures: AtomicU32,
    /// Why it is not asked any more.
    lost: OnceLock<Arc<Error>>,
}

/// What a cache says of itself.
#[derive(Debug)]
struct About {
    info: CacheInfo,
    /// How many narinfos may be asked for at once.
    questions: Semaphore,
}

impl HttpCache {
    /// Begins to ask for `nix-cache-info`, and says on `settled` when it is known whether the cache
    /// can be used.
    ///
    /// Errors: [`Error::Location`] if the address is no URL.
    pub(crate) fn begin(
        location: &HttpLocation,
        network: &Network,
        remembered: Option<Arc<Remembered>>,
        settled: mpsc::Sender<()>,
    ) -> Result<HttpCache, Error> {
        let link = Arc::new(Link {
            location: location.clone(),
            base: parse_url(&location.url)?,
            key: without_credentials(&location.url),
            web: network.web(),
            about: OnceLock::new(),
            is_settled: watch::Sender::new(false),
            remembered,
            connections: Connections::new(network.web().options.connections),
            failures: AtomicU32::new(0),
            lost: OnceLock::new(),
        });
        let opening = link.clone();
        let opened = Promise::new(move |about| {
            // Nobody else sets it.
            let _: Result<(), _> = opening.about.set(about);
            opening.is_settled.send_replace(true);
            let _: Result<(), _> = settled.send(());
        });
        let opening = link.clone();
        link.web
            .spawn(async move { opened.keep(opening.open().await.map_err(Arc::new)) });
        Ok(HttpCache {
            link,
            default_dir: StoreDir::default(),
        })
    }

    pub(crate) fn name(&self) -> String {
        redact(&self.link.base)
    }

    /// `None`: the cache has not answered yet.
    pub(crate) fn state(&self) -> Option<Result<&CacheInfo, Arc<Error>>> {
        let about = self.link.about.get()?;
        Some(match about {
            Ok(about) => Ok(&about.info),
            Err(error) => Err(error.clone()),
        })
    }

    pub(crate) fn store_dir(&self) -> &StoreDir {
        match self.link.about.get() {
            Some(Ok(about)) => &about.info.store_dir,
            _ => &self.default_dir,
        }
    }

    /// The lower, the sooner it is asked, as its address says or else the cache itself.
    pub(crate) fn priority(&self) -> i32 {
        let own = || self.state()?.ok()?.priority;
        self.link.location.priority.or_else(own).unwrap_or(PRIORITY)
    }

    /// Asks for a narinfo; the answer goes to `answers`.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        hash_part: &str,
        belief: Belief,
        tag: T,
        answers: &mpsc::Sender<(T, Answer)>,
    ) {
        let (link, answers) = (self.link.clone(), answers.clone());
        let part = hash_part.to_owned();
        let answered = Promise::new(move |answer| {
            let _: Result<(), _> = answers.send((tag, answer));
        });
        self.link.web.spawn(async move {
            answered.keep(link.answer(&part, belief).await);
        });
    }

    /// Begins to fetch a NAR, for a worker that waits for it. The URL of a narinfo is absolute or
    /// relative to the cache.
    pub(crate) fn fetch(&self, url: &str, small: bool) -> Result<Body, Error> {
        let goal = self.nar(url)?;
        Ok(self.begin_to_fetch(goal, small, None))
    }

    /// Begins to stream a NAR to a worker that comes later; `None` if that would take a connection
    /// which others may need before.
    pub(crate) fn fetch_ahead(&self, url: &str) -> Option<Result<Body, Error>> {
        let goal = match self.nar(url) {
            Ok(goal) => goal,
            Err(error) => return Some(Err(error)),
        };
        let spared = self.link.connections.spare(&goal.url)?;
        Some(Ok(self.begin_to_fetch(goal, false, Some(spared))))
    }

    fn nar(&self, url: &str) -> Result<Goal, Error> {
        let base = &self.link.location.url;
        let url = match url.starts_with("http://") || url.starts_with("https://") {
            true => parse_url(url)?,
            false => parse_url(&format!("{base}/{url}"))?,
        };
        Ok(Goal::named_by(&self.link.base, url))
    }

    fn begin_to_fetch(&self, goal: Goal, small: bool, spared: Option<(Leave, Ahead)>) -> Body {
        let link = self.link.clone();
        let shown = redact(&goal.url);
        let (sender, chunks) = channel::channel(if small { 2 } else { CHUNKS_AHEAD });
        let (leave, ahead) = spared.unzip();
        self.link.web.spawn(async move {
            let transfer = async {
                // Kept through pauses as well: a worker that has memory for the body's decoder must
                // not wait for others, who may wait for that memory.
                let _leave = match leave {
                    Some(leave) => leave,
                    None => link.connections.take(&goal.url).await,
                };
                match small {
                    true => transfer::send_whole(&link.web, &link.connections, goal, &sender).await,
                    false => {
                        transfer::send_chunks(&link.web, &link.connections, goal, &sender).await
                    }
                }
            };
            let Some(sent) = transfer::while_wanted(&sender, transfer).await else {
                return;
            };
            let last = sent.map_or_else(Chunk::Failed, |()| Chunk::End);
            let _: Result<(), _> = sender.send(last).await;
        });
        Body::Network {
            chunks,
            url: shown,
            ahead,
        }
    }
}

impl Link {
    async fn open(&self) -> Result<About, Error> {
        let base = &self.location.url;
        let url = parse_url(&format!("{base}/nix-cache-info"))?;
        let shown = redact(&url);
        let no_cache = |reason: String| Error::NotACache {
            url: shown.clone(),
            reason,
        };
        let known = self
            .remembered
            .as_ref()
            .and_then(|all| all.cache(&self.key));
        let is_fresh = known.is_none();
        let (is_http2, text) = match known {
            // What is remembered may be of a time when a user wanted it.
            Some((was_http2, text)) => (was_http2 && self.web.options.http2, text),
            None => {
                let found = get_small(&self.web, &self.connections, url).await?;
                let found = found.map_err(|status| no_cache(absent(status)))?;
                (found.spoken == Some(Version::HTTP_2), found.text)
            }
        };
        if text.trim_ascii_start().starts_with(b"<") {
            // As the page of a hotel's network that wants to be logged in to.
            return Err(no_cache("a web page came instead".into()));
        }
        let info = CacheInfo::parse(&text).map_err(|error| no_cache(error.to_string()))?;
        if let (true, Some(all)) = (is_fresh, &self.remembered) {
            all.remember_cache(&self.key, is_http2, &text);
        }
        let wants_many = self
            .location
            .want_mass_query
            .unwrap_or(info.want_mass_query);
        if is_http2 {
            self.connections.share(self.base.clone());
        }
        // HTTP/2 carries many questions on one connection; HTTP/1.1 needs one for each.
        let at_once = match (wants_many, is_http2) {
            (false, _) => FEW,
            (true, true) => STREAMS_MAX,
            (true, false) => self.web.options.connections,
        };
        Ok(About {
            info,
            questions: Semaphore::new(at_once.clamp(1, QUESTIONS_MAX)),
        })
    }

    async fn answer(&self, hash_part: &str, belief: Belief) -> Answer {
        let mut settled = self.is_settled.subscribe();
        // The sender is as old as this.
        let _: Result<_, _> = settled.wait_for(|is_settled| *is_settled).await;
        let about = match self.about.get() {
            Some(Ok(about)) => about,
            Some(Err(error)) => return Err(Error::Unusable(error.clone())),
            None => return Err(Error::Cancelled),
        };
        // The semaphore is never closed.
        let _permit = about.questions.acquire().await;
        if let Some(error) = self.lost.get() {
            return Err(Error::Unusable(error.clone()));
        }
        if let Some(known) = self.known(about, hash_part, belief) {
            return Ok(known);
        }
        let base = &self.location.url;
        let url = parse_url(&format!("{base}/{hash_part}.narinfo"))?;
        let shown = redact(&url);
        let found = self.judge(get_small(&self.web, &self.connections, url).await)?;
        let text = found.ok().map(|found| found.text);
        let parsed = text.as_deref().map(|text| {
            NarInfo::parse(text, &about.info.store_dir).map_err(|source| Error::NarInfo {
                url: shown,
                source: Box::new(source),
            })
        });
        let parsed = parsed.transpose();
        match (&self.remembered, &parsed) {
            (Some(all), Ok(_)) => all.remember(&self.key, hash_part, text.as_deref()),
            (Some(all), Err(_)) => all.forget(&self.key, hash_part),
            (None, _) => {}
        }
        Ok(parsed?.map(Told::from))
    }

    /// What counts of that which was answered before; `None` if the cache has to be asked.
    fn known(&self, about: &About, hash_part: &str, belief: Belief) -> Option<Option<Told>> {
        let all = self.remembered.as_ref()?;
        if belief == Belief::Nothing {
            // Not even where the cache says nothing now.
            all.forget(&self.key, hash_part);
            return None;
        }
        let Some(text) = all.narinfo(&self.key, hash_part)? else {
            return (belief == Belief::All).then_some(None);
        };
        // The file may have gone bad, or another version of floe have written it: the cache is
        // asked, and its answer takes the place of this.
        let narinfo = NarInfo::parse(&text, &about.info.store_dir).ok()?;
        Some(Some(Told {
            narinfo,
            is_remembered: true,
        }))
    }

    /// Who fails again and again, whatever is asked for, is not asked any more.
    fn judge<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        let error = match answer {
            Ok(found) => {
                self.failures.store(0, Ordering::Relaxed);
                return Ok(found);
            }
            Err(error) => error,
        };
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return Err(error);
        }
        let error = Arc::new(error);
        // The first reason is as good as any.
        let _: Result<(), _> = self.lost.set(error.clone());
        Err(Error::Unusable(error))
    }
}

/// Why there is no `nix-cache-info`. Some servers say that it may not be had where it is not there.
fn absent(status: StatusCode) -> String {
    match status {
        StatusCode::FORBIDDEN => {
            format!("the server answered {status}: it is not there, or not for whoever asks")
        }
        _ => "it is not there".into(),
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

/// Questions at once to a cache that does not want to be asked for much (`WantMassQuery`).
const FEW: usize = 4;

/// Questions in a row that fail, each after all its attempts, before a cache counts as lost: one
/// broken narinfo, or two, are no reason.
const FAILURES_MAX: u32 = 3;
