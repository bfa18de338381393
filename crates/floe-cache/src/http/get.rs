//! Gets small objects, with retries, and explains the errors of requests.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_transfer::Error;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode, Url, Version};
use tokio::time::{sleep, timeout};

use super::adaptive_limit::QueryOutcome;
use super::failure;
use super::redirect;
use super::request::Request;
use super::s3_message::{s3_advice, s3_message};
use super::shared::HttpCacheShared;
use crate::network::ProxyVar;
use crate::network::client::{BulkClient, INVALID_CERT_TEXT};
use crate::network::limiter::RequestPermits;
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
    let options = &cache.context.options;
    let mut request = Request::small(cache, url);
    let mut attempt = 1;
    loop {
        request.held = cache.context.limits.acquire(&request.target.url).await;
        let began = Instant::now();
        let result = try_get_small(cache, &mut request).await;
        // The connection is free during the pause before a retry.
        request.held = RequestPermits::none();
        if request.take_free_attempt(cache) {
            continue;
        }
        record_result(cache, &result, began.elapsed());
        match result {
            Err(error) if error.is_transient() && attempt < options.retry.attempts => {
                cache.context.report_retry(&error);
                sleep(options.retry.pause(attempt, &error)).await;
                attempt += 1;
            }
            result => return result,
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
    let mut request = Request::small(cache, url);
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
        from_disk_cache: false,
    }))
}

/// Reads a body. It is cut off some bytes after `len_max`.
pub(super) async fn read_body(
    request: &mut Request,
    response: &mut Response,
    len_max: usize,
) -> Result<Vec<u8>, Error> {
    let (mut contents, mut rate) = (Vec::new(), ReceiveRate::default());
    while let Some(bytes) = next_bytes(request, response, &mut rate).await? {
        contents.extend_from_slice(&bytes);
        if contents.len() > len_max {
            break;
        }
    }
    Ok(contents)
}

/// Sends a request over the connections that it holds.
pub(super) async fn send(
    cache: &HttpCacheShared,
    request: &mut Request,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<Response, Error> {
    let (context, shown) = (&cache.context, request.shown());
    let sent = redirect::send(context, request, change).await?;
    sent.map_err(|error| {
        let proxy = context.options.proxies.for_url(&request.target.url);
        let proxy = proxy.filter(|_| error.is_connect());
        context.explain(request_error(&shown, &error, proxy))
    })
}

/// Gets an object over the connections that the request holds.
pub(super) async fn get(
    cache: &HttpCacheShared,
    request: &mut Request,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<StatusResult<Response>, Error> {
    let mut response = send(cache, request, change).await?;
    let with_message = [
        StatusCode::FORBIDDEN,
        StatusCode::BAD_REQUEST,
        StatusCode::MOVED_PERMANENTLY,
    ];
    if cache.context.signer.is_some() && with_message.contains(&response.status()) {
        let body = read_body(request, &mut response, NARINFO_LEN_MAX).await?;
        // A bucket that must not be listed hides what it does not have.
        let message = s3_message(&body).filter(|message| !message.starts_with("AccessDenied"));
        if let Some(message) = message {
            let (status, advice) = (response.status(), s3_advice(&message));
            let reason = format!("the server answered {status} ({message}){advice}");
            return Err(Error::fetch(&request.shown(), reason, false));
        }
    }
    let (status, shown) = (response.status(), request.shown());
    let advice = match status {
        _ if status.is_success() => return Ok(Ok(response)),
        // An object store that must not be listed answers 403 for a missing object.
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::GONE => {
            return Ok(Err(status));
        }
        // The body has become shorter than the part that was received.
        StatusCode::RANGE_NOT_SATISFIABLE => return Ok(Err(status)),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            ": the proxy requires credentials; use http_proxy=http://USER:PASSWORD@HOST:PORT"
        }
        StatusCode::UNAUTHORIZED => "; add a user and a password for it to a netrc file",
        _ => return Err(status_error(&shown, status, response.headers())),
    };
    let reason = format!("the server answered {status}{advice}");
    Err(Error::fetch(&shown, reason, false))
}

/// Makes the error of a status. It says whether another attempt may succeed.
pub(super) fn status_error(shown: &str, status: StatusCode, headers: &HeaderMap) -> Error {
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let after = after.and_then(|value| retry_after(value, SystemTime::now()));
    let mut reason = format!("the server answered {status}");
    // Do not wait for a Retry-After of many minutes.
    let too_long = after.filter(|after| *after > RETRY_AFTER_MAX);
    if let Some(after) = too_long {
        reason += &format!(", with a Retry-After of {} seconds", after.as_secs());
    }
    let is_transient = match status.as_u16() {
        // Methods and versions that the server does not support, and captive portals.
        501 | 505 | 511 => false,
        // Content delivery networks use further 5xx codes for servers that they cannot reach.
        408 | 429 | 500..=599 => true,
        _ => false,
    };
    Error::Fetch {
        url: shown.to_owned(),
        reason,
        transient: is_transient && too_long.is_none(),
        status: Some(status.as_u16()),
        retry_after: after,
    }
}

/// Parses Retry-After (RFC 9110, section 10.2.3): a number of seconds or a date.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns the next bytes of a body.
///
/// Errors: also if the server has sent less than [`RATE_MIN`] for a whole window.
pub(super) async fn next_bytes(
    request: &mut Request,
    response: &mut Response,
    rate: &mut ReceiveRate,
) -> Result<Option<Bytes>, Error> {
    let began = Instant::now();
    let chunk = timeout(request.rest_wait.time(), response.chunk()).await;
    let chunk = chunk.map_err(|_| request.rest_stalled())?;
    let chunk = chunk.map_err(|error| request_error(&request.shown(), &error, None))?;
    let len = chunk.as_ref().map_or(0, Bytes::len);
    let window = request.rate_window;
    match chunk {
        Some(_) if rate.is_too_low(began.elapsed(), len, window) => {
            let seconds = window.as_secs_f64();
            let reason = format!(
                "the server sent less than {RATE_MIN} bytes per second for {seconds} seconds"
            );
            Err(Error::fetch(&request.shown(), reason, true))
        }
        chunk => Ok(chunk),
    }
}

/// The rate at which a server sends a body. Only the time that floe waits for the server counts.
#[derive(Debug, Default)]
pub(super) struct ReceiveRate {
    waited: Duration,
    bytes: u64,
}

impl ReceiveRate {
    /// Adds `len` bytes that arrived after a wait. Returns whether the rate over the last window
    /// was too low.
    fn is_too_low(&mut self, wait: Duration, len: usize, window: Duration) -> bool {
        self.waited += wait;
        self.bytes += len as u64;
        if self.waited < window {
            return false;
        }
        let ReceiveRate { waited, bytes } = std::mem::take(self);
        (bytes as f64) < waited.as_secs_f64() * RATE_MIN as f64
    }
}

/// Makes the error of a request. If no server was reached, the proxy may be the cause.
fn request_error(shown: &str, error: &reqwest::Error, proxy: Option<&ProxyVar>) -> Error {
    let mut reason = failure::describe(error);
    if let Some(proxy) = proxy {
        reason += &format!(" ({} names the proxy {})", proxy.name, proxy.redacted());
    }
    // Another attempt would get the same certificate.
    let transient = !reason.contains(INVALID_CERT_TEXT);
    Error::fetch(shown, reason, transient)
}

/// The lowest rate of a body, in bytes per second. Many bodies share one slow connection, so it is
/// far below the rate of any network.
const RATE_MIN: u64 = 1024;

/// The longest Retry-After that floe waits for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_counts_only_the_time_of_waiting() {
        let (window, second) = (Duration::from_secs(10), Duration::from_secs(1));
        let mut rate = ReceiveRate::default();
        let mut is_too_low = |wait, len| rate.is_too_low(wait, len, window);
        assert!((0..9).all(|_| !is_too_low(second, 1)));
        assert!(is_too_low(second, 1));
        // The next window begins empty.
        assert!((0..100).all(|_| !is_too_low(second, 2 * RATE_MIN as usize)));
        // A worker that takes no bytes makes no wait.
        assert!((0..100).all(|_| !is_too_low(Duration::ZERO, 1)));
    }

    #[test]
    fn retry_after_parses_seconds_and_dates() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = |text| retry_after(text, now).map(|time| time.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(seconds("soon"), None);
    }
}
