//! Requests whose responses are small and whose statuses the caller interprets, with retries.

use std::time::Duration;

use floe_transfer::Error;
use reqwest::header::HeaderMap;
use reqwest::{Method, Response, StatusCode, Url};
use tokio::time::timeout;

use super::attempts::Attempts;
use super::client::CacheClient;
use super::dialect::Explanation;
use super::redirect::send;
use super::response::{read_body, status_error};
use super::{Message, Request};
use crate::network::cancellation::{DELETE_GRACE, WRITE_GRACE};
use crate::network::limiter::RequestPermits;

/// The response to a request, whatever its status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body; cut off if it is too long to be one that floe needs.
    pub(crate) body: Vec<u8>,
}

/// Sends a request until a server replies with a final status, or it has had all its attempts.
///
/// Errors: [`Error::Fetch`] after the last attempt; [`Error::Cancelled`] a moment after the session
/// was cancelled.
pub(crate) async fn exchange(
    client: &CacheClient,
    url: Url,
    message: Message,
) -> Result<Reply, Error> {
    exchange_up_to(client, url, message, BODY_LEN_MAX).await
}

/// Sends a request as [`exchange`] does. A body is cut off some bytes after `len_max`.
pub(crate) async fn exchange_up_to(
    client: &CacheClient,
    url: Url,
    message: Message,
    len_max: usize,
) -> Result<Reply, Error> {
    let grace = match message.method {
        Method::DELETE => DELETE_GRACE,
        _ => WRITE_GRACE,
    };
    let cancellation = &client.network.cancellation;
    cancellation
        .or_end_after(grace, exchange_to_the_end((client, len_max), url, message))
        .await?
}

async fn exchange_to_the_end(
    (client, len_max): (&CacheClient, usize),
    url: Url,
    message: Message,
) -> Result<Reply, Error> {
    let mut request = Request::write(client, url, message);
    let mut attempts = Attempts::new(client, &request);
    loop {
        if request.message.body.is_repeatable() {
            attempts.begin().await?;
        } else {
            wait_for_server(client, &request, &mut attempts).await?;
        }
        request.held = write_permit(client, &request.target.url).await;
        attempts.sending();
        let result = try_exchange(client, &mut request, len_max).await;
        // The connection is free during the pause before a retry.
        request.held = RequestPermits::none();
        match result {
            Err(_) if request.take_free_attempt(client) => {}
            Err(error) if error.is_transient() => {
                if !request.message.body.is_repeatable() {
                    attempts.record_if_transient(&error);
                    return Err(error);
                }
                // The connection may be dead.
                request.bulk_client = None;
                attempts.pause_after(error).await?;
            }
            result => {
                attempts.settled(&result);
                return result;
            }
        }
    }
}

/// Waits until a request may be sent whose body can be sent only once. A small request shows
/// whether a server that was away is back.
async fn wait_for_server(
    client: &CacheClient,
    request: &Request,
    attempts: &mut Attempts<'_>,
) -> Result<(), Error> {
    while attempts.begin().await?.is_probe {
        let url = request.target.url.clone();
        let mut probe = Request::write(client, url, Method::HEAD.into());
        probe.held = write_permit(client, &request.target.url).await;
        attempts.sending();
        match try_exchange(client, &mut probe, BODY_LEN_MAX).await {
            Err(error) if error.is_transient() => attempts.pause_after(error).await?,
            _ => attempts.replied(),
        }
    }
    Ok(())
}

/// Waits for a connection. Over HTTP/2, one connection carries all requests.
async fn write_permit(client: &CacheClient, url: &Url) -> RequestPermits {
    let network = &client.network;
    if network.limits.uses_http2(url) {
        RequestPermits::none()
    } else {
        network.write_limits.acquire(url).await
    }
}

async fn try_exchange(
    client: &CacheClient,
    request: &mut Request,
    len_max: usize,
) -> Result<Reply, Error> {
    let mut response = send(client, request, |request| request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let error = status_error(&request.shown(), status, &headers);
    if !status.is_success() && error.is_transient() {
        return Err(match status {
            StatusCode::SERVICE_UNAVAILABLE => unavailable(client, request, response, error).await,
            _ => error,
        });
    }
    let body = read_body(request, &mut response, len_max).await?;
    let dialect = client.dialect.as_ref().filter(|_| status.is_success());
    let late_error = dialect.and_then(|dialect| dialect.late_error(&body));
    match late_error {
        Some(reason) => Err(Error::fetch(&request.shown(), reason, true)),
        None => Ok(Reply {
            status,
            headers,
            body,
        }),
    }
}

/// Returns the error of a server that answers 503. S3 sends this status for too many requests, and
/// a proxy sends it while its server restarts. Only the limit of S3 needs long pauses.
async fn unavailable(
    client: &CacheClient,
    request: &mut Request,
    mut response: Response,
    error: Error,
) -> Error {
    let body = read_body(request, &mut response, EXPLANATION_LEN_MAX);
    let body = timeout(EXPLANATION_WAIT, body).await;
    let explanation = match body {
        Ok(Ok(body)) => client.explain(&body),
        _ => None,
    };
    match (explanation, error) {
        (
            Some(Explanation { message, .. }),
            Error::Fetch {
                url,
                reason,
                transient,
                retry_after,
                ..
            },
        ) if message.starts_with(SLOW_DOWN) => Error::Fetch {
            url,
            reason: format!("{reason} ({message})"),
            transient,
            status: Some(StatusCode::TOO_MANY_REQUESTS.as_u16()),
            retry_after,
        },
        (_, error) => error,
    }
}

/// The code of S3 for too many requests.
const SLOW_DOWN: &str = "SlowDown";

/// How long the reason of a refusal may take.
const EXPLANATION_WAIT: Duration = Duration::from_secs(1);

/// The largest document with the reason of a refusal, in bytes.
const EXPLANATION_LEN_MAX: usize = 64 * 1024;

/// The largest body that floe needs, in bytes. A page of a list has 1,000 names of at most 1 KiB.
const BODY_LEN_MAX: usize = 4 * 1024 * 1024;
