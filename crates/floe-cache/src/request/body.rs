//! The bodies of requests. A body records how much of it was sent, so that a slow upload that still
//! moves does not count as stalled.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use floe_transfer::SMALL_LEN_MAX;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// The body of a request.
#[derive(Debug, Default)]
pub(crate) enum RequestBody {
    #[default]
    Empty,
    /// Sent again with each attempt.
    Whole(Bytes),
    /// Sent once, while it is made.
    Stream(StreamedBody),
}

/// A body that is sent while it is made.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    /// `None` once an attempt has taken them.
    parts: Option<Receiver<Part>>,
    is_complete: Arc<AtomicBool>,
}

/// A part of a body that is sent while it is made.
#[derive(Debug)]
pub(crate) enum Part {
    /// The next bytes, with the permission to keep them in memory.
    Bytes(Bytes, OwnedSemaphorePermit),
    /// The end. A body without it is incomplete, and must not become an object.
    End,
}

impl StreamedBody {
    pub(crate) fn new(parts: Receiver<Part>) -> StreamedBody {
        StreamedBody {
            parts: Some(parts),
            is_complete: Arc::default(),
        }
    }

    /// Returns the flag that the client raises when it has taken the end of the body.
    pub(crate) fn is_complete(&self) -> Arc<AtomicBool> {
        self.is_complete.clone()
    }
}

impl RequestBody {
    /// Whether the body belongs on a connection of small bodies.
    pub(crate) fn is_small(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Whole(bytes) => bytes.len() <= SMALL_LEN_MAX,
            RequestBody::Stream(_) => false,
        }
    }

    /// Whether the body can be sent again.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(self, RequestBody::Stream(_))
    }

    /// Makes the body of one attempt. `None` is an empty one.
    pub(crate) fn make(&mut self, progress: &Progress) -> Option<reqwest::Body> {
        let source = match self {
            RequestBody::Empty => return None,
            RequestBody::Whole(bytes) => Source::Whole(bytes.clone()),
            RequestBody::Stream(body) => Source::Stream {
                parts: body.parts.take(),
                permit: None,
                is_complete: body.is_complete.clone(),
            },
        };
        Some(reqwest::Body::wrap(CountedBody {
            source,
            progress: progress.clone(),
        }))
    }
}

/// How much of a body the client has taken to send it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    /// The bytes that were taken.
    taken: AtomicU64,
    /// Whether the client waits for bytes that are not made yet.
    is_waiting: AtomicBool,
}

impl Progress {
    /// Runs a request until it ends, or until the server has taken and sent nothing for `wait`.
    pub(crate) async fn until_stalled<T>(
        &self,
        wait: Duration,
        request: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut request = std::pin::pin!(request);
        let taken = || self.0.taken.load(Ordering::Relaxed);
        loop {
            let before = taken();
            match timeout(wait, request.as_mut()).await {
                Err(_) if taken() > before || self.0.is_waiting.load(Ordering::Relaxed) => {}
                ended => return ended,
            }
        }
    }
}

/// A body that counts the bytes that were taken from it.
struct CountedBody {
    source: Source,
    progress: Progress,
}

enum Source {
    Whole(Bytes),
    Stream {
        /// `None` if an earlier attempt has taken them.
        parts: Option<Receiver<Part>>,
        /// The permission for the last part.
        permit: Option<OwnedSemaphorePermit>,
        is_complete: Arc<AtomicBool>,
    },
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let progress = self.progress.0.clone();
        let next = match &mut self.source {
            Source::Whole(rest) if rest.is_empty() => None,
            Source::Whole(rest) => Some(Ok(rest.split_to(rest.len().min(FRAME_LEN)))),
            Source::Stream {
                parts,
                permit,
                is_complete,
            } => {
                // The client asks for more only when it has sent the last part.
                *permit = None;
                let part = match parts {
                    Some(parts) => {
                        progress.is_waiting.store(true, Ordering::Relaxed);
                        ready!(parts.poll_recv(context))
                    }
                    None => None,
                };
                progress.is_waiting.store(false, Ordering::Relaxed);
                match part {
                    Some(Part::Bytes(bytes, new)) => {
                        *permit = Some(new);
                        Some(Ok(bytes))
                    }
                    Some(Part::End) => {
                        is_complete.store(true, Ordering::Relaxed);
                        None
                    }
                    None => Some(Err("the upload was abandoned")),
                }
            }
        };
        let len = match &next {
            Some(Ok(bytes)) => bytes.len(),
            _ => 0,
        };
        progress.taken.fetch_add(len as u64, Ordering::Relaxed);
        Poll::Ready(next.map(|next| next.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Source::Stream { .. } => SizeHint::default(),
        }
    }
}

/// The bytes of a body in memory that the client takes at once.
const FRAME_LEN: usize = 64 * 1024;
