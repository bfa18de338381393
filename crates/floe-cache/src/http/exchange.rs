//! Requests whose responses are small and whose statuses the caller interprets, with retries.

use floe_transfer::Error;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url};
use tokio::time::sleep;

use super::get::{read_body, send, status_error};
use super::request::{Message, Request};
use super::s3_message::s3_message;
use super::shared::HttpCacheShared;
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
/// Errors: [`Error::Fetch`] after the last attempt.
pub(crate) async fn exchange(
    cache: &HttpCacheShared,
    url: Url,
    message: Message,
) -> Result<Reply, Error> {
    let retry = &cache.context.options.retry;
    let mut request = Request::write(cache, url, message);
    let mut attempt = 1;
    loop {
        request.held = write_permit(cache, &request.target.url).await;
        let result = try_exchange(cache, &mut request).await;
        // The connection is free during the pause before a retry.
        request.held = RequestPermits::none();
        let attempts = match request.message.body.is_repeatable() {
            true => retry.attempts,
            false => 1,
        };
        match result {
            Err(error) if error.is_transient() && attempt < attempts => {
                cache.context.report_retry(&error);
                // The connection may be dead.
                request.bulk_client = None;
                sleep(retry.pause(attempt, &error)).await;
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// Waits for a connection. Over HTTP/2, one connection carries all requests.
async fn write_permit(cache: &HttpCacheShared, url: &Url) -> RequestPermits {
    let context = &cache.context;
    match context.limits.uses_http2(url) {
        true => RequestPermits::none(),
        false => context.write_limits.acquire(url).await,
    }
}

async fn try_exchange(cache: &HttpCacheShared, request: &mut Request) -> Result<Reply, Error> {
    let mut response = send(cache, request, |request| request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let error = status_error(&request.shown(), status, &headers);
    if !status.is_success() && error.is_transient() {
        return Err(error);
    }
    let body = read_body(request, &mut response, BODY_LEN_MAX).await?;
    // S3 begins the reply to the end of a multipart upload before it knows the result.
    let late_error = match status.is_success() {
        true => s3_message(&body),
        false => None,
    };
    match late_error {
        Some(reason) => Err(Error::fetch(&request.shown(), reason, true)),
        None => Ok(Reply {
            status,
            headers,
            body,
        }),
    }
}

/// The largest body that floe needs, in bytes. A page of a list has 1,000 names of at most 1 KiB.
const BODY_LEN_MAX: usize = 4 * 1024 * 1024;
