//! Requests whose responses are small and whose statuses the caller interprets, with retries.

use floe_transfer::Error;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url};
use tokio::time::sleep;

use super::client::CacheClient;
use super::redirect::send;
use super::response::{read_body, status_error};
use super::{Message, Request};
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
    client: &CacheClient,
    url: Url,
    message: Message,
) -> Result<Reply, Error> {
    let retry = &client.options.retry;
    let mut request = Request::write(client, url, message);
    let mut attempt = 1;
    loop {
        request.held = write_permit(client, &request.target.url).await;
        let result = try_exchange(client, &mut request).await;
        // The connection is free during the pause before a retry.
        request.held = RequestPermits::none();
        let attempts = if request.message.body.is_repeatable() {
            retry.attempts
        } else {
            1
        };
        match result {
            Err(error) if error.is_transient() && attempt < attempts => {
                client.network.report_retry(&error);
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
async fn write_permit(client: &CacheClient, url: &Url) -> RequestPermits {
    let network = &client.network;
    if network.limits.uses_http2(url) {
        RequestPermits::none()
    } else {
        network.write_limits.acquire(url).await
    }
}

async fn try_exchange(client: &CacheClient, request: &mut Request) -> Result<Reply, Error> {
    let mut response = send(client, request, |request| request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let error = status_error(&request.shown(), status, &headers);
    if !status.is_success() && error.is_transient() {
        return Err(error);
    }
    let body = read_body(request, &mut response, BODY_LEN_MAX).await?;
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

/// The largest body that floe needs, in bytes. A page of a list has 1,000 names of at most 1 KiB.
const BODY_LEN_MAX: usize = 4 * 1024 * 1024;
