//! When a failed request is repeated, and how long floe waits for a server that is away.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use crate::error::Error;

/// When a failed request is repeated: the settings `filetransfer-retry-*` of Nix 2.35, with its
/// defaults, and floe's own `outage-timeout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a request is sent in all before it has failed (`filetransfer-retry-attempts`). 0
    /// means 1.
    pub attempts: u32,
    /// How long a server may be away before a request to it fails (`outage-timeout`), even if it
    /// had all its attempts. Zero: the attempts alone count.
    pub outage_timeout: Duration,
    /// The pause after the first failure (`filetransfer-retry-delay`). Each further one is twice as
    /// long.
    pub delay: Duration,
    /// The same if the server has too many requests: status 429 or 503
    /// (`filetransfer-retry-delay-rate-limited`).
    pub rate_limited_delay: Duration,
    /// Whether `rate_limited_delay` also counts for status 503 while floe waits for a server. A
    /// server that restarts answers 503, too, and is back sooner.
    pub delays_unavailable: bool,
    /// The longest pause, unless the server demands a longer one (`filetransfer-retry-max-delay`).
    pub max_delay: Duration,
    /// Whether each pause is a random part of its length (`filetransfer-retry-jitter`), so that
    /// clients that failed together do not return together.
    pub jitter: bool,
}

impl RetryPolicy {
    /// Returns the default with another number of attempts, after which a request has failed.
    pub fn with_attempts(attempts: u32) -> RetryPolicy {
        RetryPolicy {
            attempts,
            outage_timeout: Duration::ZERO,
            delays_unavailable: true,
            ..RetryPolicy::default()
        }
    }

    /// Whether floe waits for a server that is away, and does not only count attempts.
    pub fn waits_for_outages(&self) -> bool {
        !self.outage_timeout.is_zero()
    }

    /// Returns the pause before the next request shows whether a server is back, after `failures`
    /// requests in a row have failed. It is short, so that an outage costs little more than its
    /// own time; only a server with too many requests gets longer ones.
    pub fn probe_pause(&self, failures: u32, error: &Error) -> Duration {
        let is_limited = error.is_rate_limited()
            && (self.delays_unavailable || error.status() != Some(SERVICE_UNAVAILABLE));
        if is_limited || error.retry_after().is_some() {
            return self.pause(failures, error);
        }
        let plain = RetryPolicy {
            rate_limited_delay: self.delay,
            max_delay: self.max_delay.min(PROBE_PAUSE_MAX),
            ..self.clone()
        };
        plain.pause(failures, error)
    }

    /// Returns how long a server may be away that fails with this error.
    pub fn timeout_of(&self, error: &Error) -> Duration {
        self.outage_timeout.max(match error.status() {
            // It is there, and its limit may count for minutes.
            Some(TOO_MANY_REQUESTS) => RATE_LIMIT_TIMEOUT,
            // Perhaps it has a limit for each minute.
            Some(SERVICE_UNAVAILABLE) => UNAVAILABLE_TIMEOUT,
            _ => Duration::ZERO,
        })
    }

    /// Returns the pause after a failed attempt, the first of which has the number 1. The pause is
    /// never shorter than a server's `Retry-After`; jitter comes on top of that. A server that
    /// demands a short pause gets a short one, also after status 429 and 503.
    pub fn pause(&self, attempt: u32, error: &Error) -> Duration {
        let demanded = error.retry_after();
        let first = match (error.is_rate_limited(), demanded) {
            (true, None) => self.rate_limited_delay,
            (true, Some(demanded)) => demanded.clamp(
                self.delay.min(self.rate_limited_delay),
                self.rate_limited_delay,
            ),
            (false, _) => self.delay,
        };
        let demanded = demanded.unwrap_or_default();
        let factor = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let own = first.saturating_mul(factor).min(self.max_delay);
        if self.jitter {
            demanded.saturating_add(own.mul_f64(random_fraction()))
        } else {
            demanded.max(own)
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: 5,
            outage_timeout: OUTAGE_TIMEOUT,
            delay: Duration::from_millis(100),
            rate_limited_delay: Duration::from_secs(5),
            delays_unavailable: false,
            max_delay: Duration::from_secs(60),
            jitter: true,
        }
    }
}

/// The default of `outage-timeout`: an outage of half a minute, and the time until its end is
/// noticed.
pub const OUTAGE_TIMEOUT: Duration = Duration::from_secs(40);

/// How long a server may answer every request with 429.
const RATE_LIMIT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// How long a server may answer every request with 503.
const UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest pause before floe looks again whether a server is back.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(1);

const TOO_MANY_REQUESTS: u16 = 429;

/// The status of a server that restarts or has too many requests.
const SERVICE_UNAVAILABLE: u16 = 503;

/// Returns a random number from 0 to 1.
fn random_fraction() -> f64 {
    (random_number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns a random number. It need not be secret, so the random keys of the standard library's
/// hash maps are good enough.
pub fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failure(status: Option<u16>, retry_after: Option<Duration>) -> Error {
        Error::Fetch {
            url: "u".into(),
            reason: "r".into(),
            transient: true,
            status,
            retry_after,
        }
    }

    #[test]
    fn pause_doubles_up_to_its_limit() {
        let policy = RetryPolicy {
            jitter: false,
            ..RetryPolicy::default()
        };
        let seconds = |attempt, status| policy.pause(attempt, &failure(status, None)).as_secs_f64();
        for (attempt, plain, limited) in [(1, 0.1, 5.0), (2, 0.2, 10.0), (5, 1.6, 60.0)] {
            assert_eq!(seconds(attempt, None), plain);
            assert_eq!(seconds(attempt, Some(500)), plain);
            assert_eq!(seconds(attempt, Some(503)), limited);
            assert_eq!(seconds(attempt, Some(429)), limited);
        }
        assert_eq!(seconds(u32::MAX, None), 60.0);
        assert_eq!(
            policy.pause(1, &failure(Some(503), Some(7 * SECOND))),
            7 * SECOND
        );
        assert_eq!(policy.pause(1, &failure(Some(503), Some(SECOND))), SECOND);
        let at_once = failure(Some(503), Some(Duration::ZERO));
        assert_eq!(policy.pause(1, &at_once), Duration::from_millis(100));
    }

    #[test]
    fn jitter_is_full_and_follows_retry_after() {
        let policy = RetryPolicy::default();
        let pauses = |retry_after| {
            let failure = failure(Some(429), retry_after);
            let mut pauses: Vec<_> = (0..1000).map(|_| policy.pause(2, &failure)).collect();
            pauses.sort_unstable();
            (pauses[0], pauses[999])
        };
        let (shortest, longest) = pauses(None);
        assert!(shortest < SECOND && longest > 9 * SECOND && longest <= 10 * SECOND);
        let (shortest, longest) = pauses(Some(7 * SECOND));
        assert!(shortest >= 7 * SECOND && shortest < 8 * SECOND);
        assert!(longest > 16 * SECOND && longest <= 17 * SECOND);
    }
}
