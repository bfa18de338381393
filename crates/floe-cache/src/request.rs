//! One request: its client, its attempts, redirects and logins, and the failures that the user
//! sees. It knows no cache; a kind of server that wants more than plain HTTP has a [`Dialect`].

mod attempts;
mod auth;
mod body;
mod client;
mod dialect;
#[cfg(feature = "s3")]
mod error_document;
mod exchange;
mod failure;
mod options;
mod redirect;
mod reply_wait;
mod response;
mod server;
mod target;

pub(crate) use attempts::Attempts;
pub(crate) use body::{Part, RequestBody, StreamedBody};
pub(crate) use client::CacheClient;
pub(crate) use dialect::{Dialect, Explanation, Signing};
#[cfg(feature = "s3")]
pub(crate) use error_document::ErrorDocument;
pub(crate) use exchange::{Reply, exchange, exchange_up_to};
pub use options::RequestOptions;
pub(crate) use redirect::send;
pub(crate) use reply_wait::{ReplyTime, ReplyWait};
pub(crate) use response::{ReceiveRate, next_bytes, read_body, status_error};
pub(crate) use target::RequestTarget;

use std::time::Duration;

use floe_transfer::url::redact;
use floe_transfer::{Buffering, Error};
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};

use crate::network::client::BulkClient;
use crate::network::limiter::RequestPermits;

/// A request, with the things that it keeps between its attempts.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) target: RequestTarget,
    pub(crate) held: RequestPermits,
    /// The client for hosts that speak HTTP/2, if it is not the shared one.
    pub(crate) bulk_client: Option<BulkClient>,
    /// How long the head of the response may take.
    pub(crate) head_wait: ReplyWait,
    /// How long further bytes may take.
    pub(crate) rest_wait: ReplyWait,
    /// The time after which the rate of the body is compared with the least rate.
    pub(crate) rate_window: Duration,
    pub(crate) message: Message,
}

/// The parts of a request beside its URL. The default is a GET.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: RequestBody,
    /// Whether only TLS protects the reply, so that no redirect may lead to plain HTTP.
    pub(crate) needs_tls: bool,
    /// Whether messages leave out the query of the URL, which may contain a secret.
    pub(crate) hides_query: bool,
}

impl Message {
    /// Whether the request changes something, so that only some redirects may repeat it.
    pub(crate) fn is_write(&self) -> bool {
        ![Method::GET, Method::HEAD].contains(&self.method)
    }

    /// Whether the request may arrive twice without harm (RFC 9110, section 9.2.2), and can be sent
    /// again.
    fn is_idempotent(&self) -> bool {
        self.method.is_idempotent() && self.body.is_repeatable()
    }
}

impl From<Method> for Message {
    /// Makes a request without a body.
    fn from(method: Method) -> Message {
        Message {
            method,
            ..Message::default()
        }
    }
}

impl Request {
    /// Makes a request that writes, which has no connection yet. One that can be repeated is sent
    /// again over another connection if the server is silent for long; the others wait for the
    /// whole timeout.
    pub(crate) fn write(client: &CacheClient, url: Url, message: Message) -> Request {
        let buffering = if message.body.is_small() {
            Buffering::Whole
        } else {
            Buffering::Stream
        };
        let timeout = client.options.stall_timeout;
        let head_wait = if message.is_idempotent() {
            ReplyWait::for_write(timeout)
        } else {
            ReplyWait::whole(timeout)
        };
        Request {
            target: url.into(),
            held: RequestPermits::none(),
            bulk_client: Some(client.clients.choose_bulk(buffering)),
            head_wait,
            rest_wait: ReplyWait::whole(timeout),
            rate_window: timeout.min(RATE_WINDOW_MAX),
            message,
        }
    }

    /// Returns the URL without credentials.
    pub(crate) fn shown(&self) -> String {
        let mut url = self.target.url.clone();
        if self.message.hides_query {
            url.set_query(None);
        }
        redact(&url)
    }

    /// Whether another attempt is free because it ended before the timeout. Over HTTP/2 it uses
    /// another connection. Over HTTP/1.1, the client has closed the old one.
    pub(crate) fn take_free_attempt(&mut self, client: &CacheClient) -> bool {
        let waits = [&mut self.head_wait, &mut self.rest_wait];
        let is_free = waits.map(ReplyWait::take_free_attempt).contains(&true);
        if is_free {
            self.bulk_client = match self.bulk_client {
                Some(_) => None,
                None => Some(client.clients.choose_bulk(Buffering::Whole)),
            };
        }
        is_free
    }

    /// Makes the error of a server that sent no head.
    pub(crate) fn head_stalled(&mut self) -> Error {
        let error = stall_error(&self.shown(), self.head_wait.time());
        self.head_wait.expire();
        error
    }

    /// Makes the error of a server that sent no further bytes.
    pub(crate) fn rest_stalled(&mut self) -> Error {
        let error = stall_error(&self.shown(), self.rest_wait.time());
        self.rest_wait.expire();
        error
    }
}

fn stall_error(shown: &str, waited: Duration) -> Error {
    let seconds = waited.as_secs_f64();
    Error::fetch(
        shown,
        format!("nothing arrived for {seconds} seconds"),
        true,
    )
}

/// The time after which the rate is compared, unless `stalled-download-timeout` is shorter.
pub(crate) const RATE_WINDOW_MAX: Duration = Duration::from_secs(60);
