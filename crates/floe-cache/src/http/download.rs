//! Downloads of bodies.
//!
//! If a transfer breaks off, the task requests the rest of the body, provided that a validator
//! shows that the server still has the same body. The worker then notices nothing. Otherwise the
//! worker gets an error and requests the body from its beginning. RFC 9110, section 14, and 13.1.5
//! for `If-Range`.
//!
//! The client decodes bodies with a `Content-Encoding`, and removes this field and the length. A
//! body without a length may therefore have other bytes than those of the server's ranges. floe
//! continues a chunked body if the rest has a length and thus no encoding. Servers with encodings
//! on the fly give encoded bodies another strong validator (RFC 9110, section 8.8.3).
//!
//! A body without chunks and without a length ends with its connection, or the server encoded it
//! before, with one validator for all ranges. floe requests such a body from its beginning.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use floe_transfer::{Error, SMALL_LEN_MAX};
use reqwest::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use reqwest::{RequestBuilder, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::SendError;
use tokio::time::sleep;

use super::get::get;
use super::network_body::Chunk;
use super::response_fields::{content_range, is_of_another_body, is_unencoded, validator};
use super::shared::HttpCacheShared;
use crate::request::{Attempts, ReceiveRate, Request, next_bytes};

/// Runs a transfer until the worker drops the receiver of its chunks; then returns `None` without
/// waiting for the server.
pub(super) async fn until_closed<T>(
    chunks: &Sender<Chunk>,
    transfer: impl Future<Output = T>,
) -> Option<T> {
    let (mut transfer, mut closed) = (pin!(transfer), pin!(chunks.closed()));
    poll_fn(|context| match transfer.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => closed.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Streams a part of a body as fast as the worker reads it.
pub(super) async fn stream_body(
    cache: &HttpCacheShared,
    request: &mut Request,
    (can_fail_over, part): (bool, Range<u64>),
    chunks: &Sender<Chunk>,
) -> Result<(), Error> {
    let policy = &cache.client.options.retry;
    let mut download = Download {
        cache,
        shown: request.shown(),
        attempts: Attempts::new(&cache.client, request),
        can_fail_over,
        request,
        chunks,
        len: part.start,
        part,
        validator: None,
        has_length: false,
    };
    loop {
        let before = download.len;
        let Err(error) = download.send_rest().await else {
            return Ok(());
        };
        // A connection that breaks again and again can still complete a large body.
        let is_progress = download.len - before >= PROGRESS_LEN_MIN;
        if is_progress {
            download.attempts.record_progress();
        }
        if download.request.take_free_attempt(&cache.client) {
            continue;
        }
        let can_continue = download.is_at_start() || download.validator.is_some();
        if !can_continue || !error.is_transient() {
            download.attempts.record_if_transient(&error);
            return Err(error);
        }
        if is_progress && policy.attempts > 1 {
            // Do not report a retry that made progress.
            sleep(policy.pause(1, &error)).await;
            continue;
        }
        // With another source there is one attempt. A body that makes progress continues here all
        // the same, because the other source would send it from its beginning.
        if can_fail_over {
            download.attempts.record_if_transient(&error);
            return Err(error.into_permanent());
        }
        // This connection may be dead, or the host may refuse further ones.
        download.request.bulk_client = None;
        let paused = download.attempts.pause_after(error).await;
        // Otherwise the worker would make as many attempts again.
        paused.map_err(Error::into_permanent)?;
    }
}

/// A body that is sent to the worker.
struct Download<'a> {
    cache: &'a HttpCacheShared,
    request: &'a mut Request,
    /// The URL without credentials.
    shown: String,
    attempts: Attempts<'a>,
    /// Whether another source may have the body.
    can_fail_over: bool,
    chunks: &'a Sender<Chunk>,
    /// The part of the body that the worker wants. A whole body has no known end.
    part: Range<u64>,
    /// The number of bytes of the body before the next one for the worker.
    len: u64,
    /// The validator of the body, if the server can send the rest of it.
    validator: Option<String>,
    /// Whether the response had a length, so that the client has not decoded it.
    has_length: bool,
}

impl Download<'_> {
    /// Whether the worker has received nothing.
    fn is_at_start(&self) -> bool {
        self.len == self.part.start
    }

    /// Sends the rest of the body, in as many ranges as the server chooses.
    async fn send_rest(&mut self) -> Result<(), Error> {
        loop {
            let before = self.len;
            let Some(len) = self.send_response().await? else {
                return Ok(());
            };
            // A range that is too small counts as a broken transfer: many of them would be slow.
            if self.validator.is_none() || self.len - before < PROGRESS_LEN_MIN {
                let reason = format!("the server sent {} bytes of {len} and no more", self.len);
                return Err(Error::fetch(&self.shown, reason, true));
            }
        }
    }

    /// Sends one response to the worker. Returns the length of the whole body if that is larger.
    async fn send_response(&mut self) -> Result<Option<u64>, Error> {
        begin(&mut self.attempts, self.can_fail_over).await?;
        let reply = match self.validator.clone() {
            Some(validator) if !self.is_at_start() => self.request_rest(&validator).await,
            _ => self.request_part().await.map(Some),
        };
        self.attempts.settled(&reply);
        let Some(mut response) = reply? else {
            // The body has changed, so the worker must begin again.
            self.validator = None;
            let reason = "the transfer broke off, and the server does not send the rest of the \
                          same file";
            return Err(Error::fetch(&self.shown, reason, true));
        };
        if self.is_at_start() {
            self.validator = validator(response.headers());
            self.has_length = is_unencoded(response.headers());
        }
        let is_piece = response.status() == StatusCode::PARTIAL_CONTENT;
        let range = content_range(response.headers()).filter(|_| is_piece);
        if self.validator.is_none() {
            self.request.rest_wait.wait_for_timeout();
        }
        // A server without ranges sends the whole body again.
        let mut known = if is_piece { 0 } else { self.len };
        let mut rate = ReceiveRate::default();
        while self.len < self.part.end
            && let Some(mut bytes) = next_bytes(self.request, &mut response, &mut rate).await?
        {
            let repeated = bytes
                .len()
                .min(usize::try_from(known).unwrap_or(usize::MAX));
            bytes.advance(repeated);
            known -= repeated as u64;
            if bytes.is_empty() {
                continue;
            }
            self.len += bytes.len() as u64;
            let permits = &self.cache.client.network.waiting_chunks;
            if send_chunk(self.chunks, permits, bytes).await.is_err() {
                // The worker has dropped this body, and reports the reason itself.
                return Ok(None);
            }
        }
        let wanted = range.map(|(_, len)| len.min(self.part.end));
        Ok(wanted.filter(|len| self.len < *len))
    }

    /// Requests the part of the body. A server without ranges replies with the whole body.
    async fn request_part(&mut self) -> Result<Response, Error> {
        let part = self.part.clone();
        if part == (0..u64::MAX) {
            return expect_response(self.cache, self.request, |request| request).await;
        }
        let range = format!("bytes={}-{}", part.start, part.end.saturating_sub(1));
        let response = expect_response(self.cache, self.request, |request| {
            request
                .header(RANGE, &range)
                // The offsets are those of the file.
                .header(ACCEPT_ENCODING, "identity")
        });
        let response = response.await?;
        let is_other_part = response.status() == StatusCode::PARTIAL_CONTENT
            && content_range(response.headers()).is_none_or(|(first, _)| first != part.start);
        if is_other_part {
            let reason = "the server sent another part than the requested one";
            return Err(Error::fetch(&self.shown, reason, false));
        }
        Ok(response)
    }

    /// Requests the rest of the same body. A server without ranges may reply with the whole body.
    /// Returns `None` if the server does not have it any more.
    async fn request_rest(&mut self, known: &str) -> Result<Option<Response>, Error> {
        let len = self.len;
        let asked = get(self.cache, self.request, |request| {
            request
                .header(RANGE, format!("bytes={len}-"))
                .header(IF_RANGE, known)
                // An encoded body would have other bytes than those counted here.
                .header(ACCEPT_ENCODING, "identity")
        });
        let is_same = |response: &Response| {
            let headers = response.headers();
            let has_same_bytes = self.has_length || is_unencoded(headers);
            let is_usable = match response.status() {
                StatusCode::PARTIAL_CONTENT => {
                    !is_of_another_body(headers, known)
                        && content_range(headers).is_some_and(|(first, _)| first == len)
                }
                _ => validator(headers).as_deref() == Some(known),
            };
            has_same_bytes && is_usable
        };
        Ok(asked.await?.ok().filter(is_same))
    }
}

/// Sends a chunk of a large body. All bodies share the permits for waiting chunks. If there are
/// none, a body sends the next chunk when its worker has received all earlier ones. No body waits
/// for the worker of another one.
async fn send_chunk(
    chunks: &Sender<Chunk>,
    permits: &Arc<Semaphore>,
    bytes: Bytes,
) -> Result<(), SendError<()>> {
    let permit = permits.clone().try_acquire_owned().ok();
    let room = match permit {
        Some(_) => 1,
        None => chunks.max_capacity(),
    };
    if let Some(room) = chunks.reserve_many(room).await?.next() {
        room.send(Chunk::Bytes(bytes, permit));
    }
    Ok(())
}

/// Waits until a body may be requested. If another source may have it, waits only for a moment for
/// a server that is away.
async fn begin(attempts: &mut Attempts<'_>, can_fail_over: bool) -> Result<(), Error> {
    if can_fail_over {
        attempts.begin_within(AWAY_WAIT).await?;
    } else {
        attempts.begin().await?;
    }
    Ok(())
}

/// Fetches a small body whole. It waits for its worker in memory, so the server cannot time out.
pub(super) async fn send_small_body(
    cache: &HttpCacheShared,
    request: &mut Request,
    can_fail_over: bool,
    chunks: &Sender<Chunk>,
) -> Result<(), Error> {
    let mut attempts = Attempts::new(&cache.client, request);
    let whole = loop {
        begin(&mut attempts, can_fail_over).await?;
        match get_small_body(cache, request).await {
            Err(_) if request.take_free_attempt(&cache.client) => {}
            Err(error) if error.is_transient() && !can_fail_over => {
                let paused = attempts.pause_after(error).await;
                // Otherwise the worker would make as many attempts again.
                paused.map_err(Error::into_permanent)?;
            }
            result => {
                attempts.settled(&result);
                if let Err(error) = &result {
                    attempts.record_if_transient(error);
                }
                break result?;
            }
        }
    };
    let _: Result<(), _> = chunks.send(Chunk::Bytes(whole, None)).await;
    Ok(())
}

async fn get_small_body(cache: &HttpCacheShared, request: &mut Request) -> Result<Bytes, Error> {
    let mut response = expect_response(cache, request, |request| request).await?;
    let (mut whole, mut rate) = (BytesMut::new(), ReceiveRate::default());
    while let Some(bytes) = next_bytes(request, &mut response, &mut rate).await? {
        whole.extend_from_slice(&bytes);
        if whole.len() > SMALL_LEN_MAX {
            let reason = format!("the body is larger than its narinfo says ({SMALL_LEN_MAX})");
            return Err(Error::fetch(&request.shown(), reason, false));
        }
    }
    Ok(whole.freeze())
}

/// Requests a body that must exist.
async fn expect_response(
    cache: &HttpCacheShared,
    request: &mut Request,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<Response, Error> {
    let began = Instant::now();
    let response = get(cache, request, change).await?;
    cache.nar_reply_time.record(began.elapsed());
    response.map_err(|status| {
        let reason = format!(
            "the server does not have it, although the narinfo names it: it answered {status}"
        );
        Error::Fetch {
            url: request.shown(),
            reason,
            transient: false,
            status: Some(status.as_u16()),
            retry_after: None,
        }
    })
}

/// How long a body waits for a server that is away, if another source may have it.
const AWAY_WAIT: Duration = Duration::from_secs(3);

/// A transfer makes progress if it receives at least this many bytes before it breaks.
const PROGRESS_LEN_MIN: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_closed_ends_when_receiver_is_dropped() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let (chunks, wanted) = tokio::sync::mpsc::channel(1);
        let ended = until_closed(&chunks, std::future::ready(7));
        assert_eq!(runtime.block_on(ended), Some(7));
        drop(wanted);
        let silent = until_closed(&chunks, std::future::pending::<()>());
        assert_eq!(runtime.block_on(silent), None);
    }

    #[test]
    fn chunk_without_permit_waits_for_its_own_worker() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let permits = Arc::new(Semaphore::new(3));
        let (first, mut of_first) = tokio::sync::mpsc::channel(8);
        let (second, mut of_second) = tokio::sync::mpsc::channel(8);
        let bytes = || Bytes::from_static(b"chunk");
        runtime.unwrap().block_on(async {
            for _ in 0..3 {
                send_chunk(&first, &permits, bytes()).await.unwrap();
            }
            // A body may always have one chunk.
            send_chunk(&second, &permits, bytes()).await.unwrap();
            for chunks in [&first, &second] {
                let mut next = pin!(send_chunk(chunks, &permits, bytes()));
                let is_pending =
                    poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending()));
                assert!(is_pending.await);
            }
            let next = send_chunk(&second, &permits, bytes());
            drop(of_second.recv().await);
            next.await.unwrap();
            // A received chunk returns its permit.
            drop(of_first.recv().await);
            send_chunk(&second, &permits, bytes()).await.unwrap();
        });
        assert_eq!((of_first.len(), of_second.len()), (2, 2));
        drop((of_first, of_second));
        assert_eq!(permits.available_permits(), 3);
    }
}
