//! The one place where a response is finished: each response is counted and enters the access log
//! here.

pub(crate) mod access_log;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::http::refusal::Refusal;
use crate::http::request::{Request, ResponseMode};
use crate::http::response::{CacheKind, CacheUse, Response};
use crate::http::route_kind::RouteKind;
use crate::metrics::counters::Counters;
use access_log::{AccessLog, LoggedRequest};

/// Finishes the responses of one thread.
#[derive(Debug)]
pub(crate) struct Finisher {
    pub(crate) counters: Counters,
    log: Option<Arc<AccessLog>>,
    /// Lines for the log, until [`Finisher::flush`].
    lines: String,
}

/// A response as it was decided, with everything that the figures and the log show of it.
#[derive(Debug)]
pub(crate) struct Finished<'a> {
    /// The address at the other end of the connection.
    pub(crate) peer: &'a str,
    pub(crate) route: RouteKind,
    pub(crate) request: Subject<'a>,
    /// The name of the login, or the one that was refused.
    pub(crate) user: Option<&'a str>,
    pub(crate) summary: Summary,
    pub(crate) clock: &'a Clock,
}

/// The request that a response belongs to.
#[derive(Debug)]
pub(crate) enum Subject<'a> {
    /// A request whose bytes are still there.
    Parsed(&'a Request<'a>),
    /// A request that a worker responds to. It is kept only if there is a log.
    Deferred(Option<&'a LoggedRequest<'static>>),
    /// Bytes that are not a valid request, or none if the client was refused before it sent any.
    Invalid(&'a [u8]),
}

/// The part of a response that outlives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) status: u16,
    /// The length of the body, if it is known beforehand.
    pub(crate) length: Option<u64>,
    /// How many bytes of the body are sent, if that is known beforehand.
    pub(crate) body_bytes: u64,
    /// How long it took to compute the response.
    pub(crate) elapsed: Duration,
    /// Whether the contents were in a cache of the server, where that is known.
    pub(crate) cache: Option<(CacheKind, CacheUse)>,
    /// The reason, if the server refuses the request.
    pub(crate) refusal: Option<Refusal>,
}

impl Summary {
    /// `began` is the value of [`Finisher::begin`], or the time at which the request was read.
    pub(crate) fn new(response: &Response, mode: ResponseMode, began: Option<Instant>) -> Summary {
        Summary {
            status: response.status,
            length: response.length,
            body_bytes: if mode.head_only {
                0
            } else {
                response.length.unwrap_or_default()
            },
            elapsed: began.map_or(Duration::ZERO, |began| began.elapsed()),
            cache: response.cache,
            refusal: response.refusal,
        }
    }

    /// For a client that is closed without a response.
    pub(crate) fn without_response(refusal: Refusal) -> Summary {
        Summary {
            status: refusal.status(),
            length: None,
            body_bytes: 0,
            elapsed: Duration::ZERO,
            cache: None,
            refusal: Some(refusal),
        }
    }
}

impl Finisher {
    pub(crate) fn new(counters: Counters, log: Option<Arc<AccessLog>>) -> Finisher {
        Finisher {
            counters,
            log,
            lines: String::new(),
        }
    }

    /// Whether a deferred request has to be kept for the log.
    pub(crate) fn keeps_requests(&self) -> bool {
        self.log.is_some()
    }

    /// Returns the time at which the computation of a response begins, if it is measured.
    pub(crate) fn begin(&self) -> Option<Instant> {
        self.log.is_some().then(Instant::now)
    }

    /// Finishes a response. Call this once for each response.
    pub(crate) fn finish_response(&mut self, finished: &Finished<'_>) {
        let (route, summary) = (finished.route, &finished.summary);
        let counters = &mut self.counters;
        counters.count_response(route, summary.status, summary.body_bytes);
        match finished.request {
            Subject::Deferred(_) => counters.count_duration(route, summary.elapsed),
            // To read the clock for each response would cost more than all other figures.
            Subject::Parsed(_) | Subject::Invalid(_) => counters.count_in_batch(route),
        }
        if let Some((kind, cache)) = summary.cache {
            counters.count_cache_use(kind, cache);
        }
        if let Some(refusal) = summary.refusal {
            counters.count_refusal(refusal);
        }
        if let Some(log) = &self.log {
            log.write_line(&mut self.lines, finished);
        }
    }

    /// Ends a batch of requests that a network thread has read at `began`.
    pub(crate) fn end_batch(&mut self, began: Instant) {
        self.counters.end_batch(began);
        self.flush();
    }

    /// Queues the lines for the writer of the log.
    pub(crate) fn flush(&mut self) {
        if let Some(log) = &self.log
            && !self.lines.is_empty()
        {
            log.writer.write(&self.lines);
            self.lines.clear();
        }
    }
}
