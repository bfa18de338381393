//! Gets objects, with retries for small ones, and explains the statuses of servers.

use std::time::{Duration, Instant};

use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_transfer::Error;
use reqwest::{RequestBuilder, Response, StatusCode, Url, Version};

use super::adaptive_limit::QueryOutcome;
use super::shared::HttpCacheShared;
use crate::network::client::BulkClient;
use crate::network::limiter::RequestPermits;
use crate::request::{Attempts, Explanation, Request, read_body, send, status_error};
use crate::storage::SmallObject;

/// A response, or the status of a server that does not have the object.
pub(super) type StatusResult<T> = Result<T, StatusCode>;

/// Gets a small document. Repeats the request until it succeeds, fails for good, or has had all its
/// attempts. `download` resumes the body of a large NAR, and the workers of floe-copy repeat a
/// whole NAR; all three use the same policy.
pub(super) async fn get_small(
    cache: &HttpCacheShared,
    url: Url,
) -> Result<StatusResult<SmallObject>, Error> {
    let mut request = cache.small_request(url);
    let mut attempts = Attempts::new(&cache.client, &request);
    loop {
        // A request that waits for the server must not hold a connection.
        attempts.begin().await?;
        request.held = cache
            .client
            .network
            .limits
            .acquire(&request.target.url)
            .await;
        attempts.sending();
        let began = Instant::now();
        let result = try_get_small(cache, &mut request).await;
        // The connection is free during the pause before a retry.
        request.held = RequestPermits::none();
        if request.take_free_attempt(&cache.client) {
            continue;
        }
        record_result(cache, &result, began.elapsed());
        match result {
            Err(error) if error.is_transient() => attempts.pause_after(error).await?,
            result => {
                attempts.settled(&result);
                return result;
            }
        }
    }
}

/// Opens the connection of a bulk client, if it has none: sends a request, and ignores the body of
/// the response.
pub(super) async fn open_connection(
    cache: &HttpCacheShared,
    url: Url,
    client: BulkClient,
) -> Result<(), Error> {
    let mut request = cache.small_request(url);
    request.bulk_client = Some(client);
    get(cache, &mut request, |request| request)
        .await
        .map(|_| ())
}

/// Adapts the limit of queries to a result, and remembers how long a reply takes.
fn record_result<T>(cache: &HttpCacheShared, result: &Result<T, Error>, time: Duration) {
    let outcome = match result {
        Err(error) if error.is_transient() => QueryOutcome::Overloaded,
        _ => {
            cache.reply_time.record(time);
            QueryOutcome::Healthy(time)
        }
    };
    if let Some(limit) = cache.query_limit.get() {
        limit.record(outcome);
    }
}

async fn try_get_small(
    cache: &HttpCacheShared,
    request: &mut Request,
) -> Result<StatusResult<SmallObject>, Error> {
    let mut response = match get(cache, request, |request| request).await? {
        Ok(response) => response,
        Err(status) => return Ok(Err(status)),
    };
    // After a redirect, the version is that of another server.
    let is_own = response.url().origin() == request.target.url.origin();
    let uses_http2 = is_own && response.version() == Version::HTTP_2;
    // The parser sees the excess, and its error names the limit.
    let contents = read_body(request, &mut response, NARINFO_LEN_MAX).await?;
    Ok(Ok(SmallObject {
        contents,
        uses_http2,
        remembered_at: None,
    }))
}

/// Gets an object over the connections that the request holds.
pub(super) async fn get(
    cache: &HttpCacheShared,
    request: &mut Request,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<StatusResult<Response>, Error> {
    let mut response = send(&cache.client, request, change).await?;
    let with_message = [
        StatusCode::FORBIDDEN,
        StatusCode::BAD_REQUEST,
        StatusCode::MOVED_PERMANENTLY,
    ];
    if cache.client.dialect.is_some() && with_message.contains(&response.status()) {
        let body = read_body(request, &mut response, NARINFO_LEN_MAX).await?;
        let explanation = cache.client.explain(&body);
        if let Some(cause) = explanation.filter(|cause| !cause.is_denial) {
            let status = response.status();
            let Explanation {
                message, advice, ..
            } = cause;
            let reason = format!("the server answered {status} ({message}){advice}");
            return Err(Error::fetch(&request.shown(), reason, false));
        }
    }
    let (status, shown) = (response.status(), request.shown());
    let advice = match status {
        _ if status.is_success() => return Ok(Ok(response)),
        StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(Err(status)),
        // The body has become shorter than the part that was received.
        StatusCode::RANGE_NOT_SATISFIABLE => return Ok(Err(status)),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            ": the proxy requires credentials; use http_proxy=http://USER:PASSWORD@HOST:PORT"
        }
        StatusCode::FORBIDDEN => FORBIDDEN_ADVICE,
        StatusCode::UNAUTHORIZED => "; add a user and a password for it to a netrc file",
        _ => return Err(status_error(&shown, status, response.headers())),
    };
    Err(Error::Fetch {
        url: shown,
        reason: format!("the server answered {status}{advice}"),
        transient: false,
        status: Some(status.as_u16()),
        retry_after: None,
    })
}

/// S3 answers 403 for an object that does not exist, if the user may not list the bucket.
const FORBIDDEN_ADVICE: &str = "; check the login or the credentials, and in a bucket allow the \
                                user to list it, because otherwise absent objects are forbidden, \
                                too";
