//! The delay between two attempts.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use crate::error::Error;

/// Returns the delay after a failed attempt. It doubles with each attempt, and is at least as long
/// as the server demands. Jitter keeps clients that failed together from returning together.
pub fn backoff_delay(attempt: u32, error: &Error) -> Duration {
    let factor = 2_u32.saturating_pow(attempt.saturating_sub(1));
    let own = BACKOFF_BASE * factor.min(BACKOFF_FACTOR_MAX);
    let own = own.mul_f64(0.5 + jitter());
    own.max(error.retry_after().unwrap_or_default())
}

/// Returns a random number from 0 to 1. It need not be secret, so the random keys of the standard
/// library's hash maps are good enough.
fn jitter() -> f64 {
    let drawn = RandomState::new().build_hasher().finish();
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

/// The first delay, as in Nix. Each further one is twice as long.
const BACKOFF_BASE: Duration = Duration::from_millis(250);

/// The largest factor: half a minute is long enough between two attempts.
const BACKOFF_FACTOR_MAX: u32 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_with_jitter_and_respects_retry_after() {
        let plain = Error::fetch("u", "r", true);
        for attempt in 1..=4 {
            let base = BACKOFF_BASE * 2_u32.pow(attempt - 1);
            let drawn: Vec<Duration> = (0..50).map(|_| backoff_delay(attempt, &plain)).collect();
            let within = |time: &Duration| *time >= base / 2 && *time <= base * 3 / 2;
            assert!(drawn.iter().all(within));
            assert!(drawn.iter().any(|time| *time != drawn[0]));
        }
        assert!(backoff_delay(u32::MAX, &plain) <= Duration::from_secs(45));
        let asked = Error::Fetch {
            url: "u".into(),
            reason: "r".into(),
            transient: true,
            retry_after: Some(Duration::from_secs(7)),
        };
        assert!(backoff_delay(1, &asked) >= Duration::from_secs(7));
    }
}
