//! Reads responses: what their status means, and their bodies at a rate that is not too low.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use floe_transfer::Error;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::time::timeout;

use super::Request;
use super::failure;

/// Reads a body. It is cut off some bytes after `len_max`.
pub(crate) async fn read_body(
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

/// Returns the next bytes of a body.
///
/// Errors: also if the server has sent less than [`RATE_MIN`] for a whole window.
pub(crate) async fn next_bytes(
    request: &mut Request,
    response: &mut Response,
    rate: &mut ReceiveRate,
) -> Result<Option<Bytes>, Error> {
    let began = Instant::now();
    let chunk = timeout(request.rest_wait.time(), response.chunk()).await;
    let chunk = chunk.map_err(|_| request.rest_stalled())?;
    let chunk = chunk.map_err(|error| failure::of_body(&request.shown(), &error))?;
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
pub(crate) struct ReceiveRate {
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

/// Makes the error of a status. It says whether another attempt may succeed.
pub(crate) fn status_error(shown: &str, status: StatusCode, headers: &HeaderMap) -> Error {
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let after = after.and_then(|value| retry_after(value, SystemTime::now()));
    let mut reason = format!("the server answered {status}");
    // A job that waits for longer is better started again.
    let too_long = after.filter(|after| *after > RETRY_AFTER_MAX);
    if let Some(after) = too_long {
        reason += &format!(", with a Retry-After of {} seconds", after.as_secs());
    }
    let is_transient = match status.as_u16() {
        // Methods and versions that the server does not support, full disks, and captive portals.
        501 | 505 | 507 | 511 => false,
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

/// The lowest rate of a body, in bytes per second. Many bodies share one slow connection, so it is
/// far below the rate of any network.
const RATE_MIN: u64 = 1024;

/// The longest Retry-After that floe waits for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(15 * 60);

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
