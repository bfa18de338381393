//! Limits the failed attempts to log in of each address, and of each user of a Unix socket.
//!
//! An address may fail [`FAILURES_MAX`] times at once, and then once per [`FAILURE_INTERVAL`]. The
//! attempts that are refused do not count, so an address waits for one interval at most.

use std::time::{Duration, Instant};

use crate::auth::client_id::ClientId;
use crate::lru::LruCache;

/// The recent failures of the addresses.
#[derive(Debug)]
pub(super) struct Throttle {
    /// When the last failure of an address expires.
    forgotten_at: LruCache<ClientId, Instant>,
    warned_at: Option<Instant>,
}

/// An address has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Throttled {
    /// Whether the operator has to be warned: no warning was shown for a while.
    pub(super) is_warning_due: bool,
}

impl Throttle {
    pub(super) fn new() -> Throttle {
        Throttle {
            forgotten_at: LruCache::new(ADDRESSES_MAX),
            warned_at: None,
        }
    }

    /// Counts an attempt that has failed or may fail.
    ///
    /// Errors: the address has to wait, and the attempt is not counted.
    pub(super) fn count_attempt(&mut self, from: ClientId, now: Instant) -> Result<(), Throttled> {
        let forgotten_at = self.forgotten_at.get(&from).unwrap_or(now).max(now) + FAILURE_INTERVAL;
        if forgotten_at > now + WINDOW {
            let due = |at: Instant| now.duration_since(at) >= WARNING_INTERVAL;
            let is_warning_due = self.warned_at.is_none_or(due);
            if is_warning_due {
                self.warned_at = Some(now);
            }
            return Err(Throttled { is_warning_due });
        }
        self.forgotten_at.put(from, forgotten_at, 1);
        Ok(())
    }

    /// Takes an attempt back that was counted and has succeeded.
    pub(super) fn take_back(&mut self, from: ClientId) {
        if let Some(forgotten_at) = self.forgotten_at.get(&from)
            && let Some(forgotten_at) = forgotten_at.checked_sub(FAILURE_INTERVAL)
        {
            self.forgotten_at.put(from, forgotten_at, 1);
        }
    }
}

/// How many attempts an address may make at once: enough for a person who mistypes a password, and
/// for clients with an old password that retry each request a few times.
pub(super) const FAILURES_MAX: u32 = 10;

/// The time after which one failure no longer counts. 10 attempts a minute find no password of any
/// strength.
pub(super) const FAILURE_INTERVAL: Duration = Duration::from_secs(6);

const WINDOW: Duration = Duration::from_secs(FAILURE_INTERVAL.as_secs() * FAILURES_MAX as u64);

/// The number of addresses that are remembered, about 1 MB. The least recently used are forgotten.
const ADDRESSES_MAX: usize = 8192;

/// How long the warning is not repeated.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_waits_after_its_failures_and_others_do_not() {
        let (mut throttle, start) = (Throttle::new(), Instant::now());
        let bad = ClientId::Network([192, 0, 2, 1].into());
        for _ in 0..FAILURES_MAX {
            throttle.count_attempt(bad, start).unwrap();
        }
        let first = throttle.count_attempt(bad, start).unwrap_err();
        assert!(first.is_warning_due);
        assert!(
            !throttle
                .count_attempt(bad, start)
                .unwrap_err()
                .is_warning_due
        );
        throttle.count_attempt(ClientId::User(1), start).unwrap();
        throttle.count_attempt(ClientId::User(2), start).unwrap();
        // The attempts that were refused have not made the wait longer.
        throttle
            .count_attempt(bad, start + FAILURE_INTERVAL)
            .unwrap();
        throttle
            .count_attempt(bad, start + FAILURE_INTERVAL)
            .unwrap_err();
        let later = start + FAILURE_INTERVAL + WARNING_INTERVAL + WINDOW;
        for _ in 0..FAILURES_MAX {
            throttle.count_attempt(bad, later).unwrap();
        }
        assert!(
            throttle
                .count_attempt(bad, later)
                .unwrap_err()
                .is_warning_due
        );
    }

    #[test]
    fn successful_attempts_do_not_count() {
        let (mut throttle, now) = (Throttle::new(), Instant::now());
        for _ in 0..100 {
            throttle.count_attempt(ClientId::User(7), now).unwrap();
            throttle.take_back(ClientId::User(7));
        }
        throttle.take_back(ClientId::Network([192, 0, 2, 1].into()));
    }
}
