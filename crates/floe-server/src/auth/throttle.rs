//! Limits the failed attempts to log in of each address.
//!
//! Each failure adds to the debt of its address, which time pays off. An address whose debt is
//! too high gets no further attempt. The attempts that are refused add nothing, so the longest wait
//! is [`FAILURE_COST`].

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::caches::lru::LruCache;

/// The debts of the addresses.
#[derive(Debug)]
pub(super) struct Throttle {
    /// The time at which the debt of an address is paid off. `None` stands for the clients of Unix
    /// sockets, which have no address.
    paid_at: LruCache<Option<IpAddr>, Instant>,
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
            paid_at: LruCache::new(ADDRESSES_MAX),
            warned_at: None,
        }
    }

    /// Counts an attempt that has failed or may fail.
    ///
    /// Errors: the address has to wait, and the attempt is not counted.
    pub(super) fn charge(&mut self, from: Option<IpAddr>, now: Instant) -> Result<(), Throttled> {
        let paid_at = self.paid_at.get(&from).unwrap_or(now).max(now) + FAILURE_COST;
        if paid_at > now + DEBT_MAX {
            let due = |at: Instant| now.duration_since(at) >= WARNING_INTERVAL;
            let is_warning_due = self.warned_at.is_none_or(due);
            if is_warning_due {
                self.warned_at = Some(now);
            }
            return Err(Throttled { is_warning_due });
        }
        self.paid_at.put(from, paid_at, 1);
        Ok(())
    }

    /// Takes an attempt back that was counted and has succeeded.
    pub(super) fn refund(&mut self, from: Option<IpAddr>) {
        if let Some(paid_at) = self.paid_at.get(&from)
            && let Some(paid_at) = paid_at.checked_sub(FAILURE_COST)
        {
            self.paid_at.put(from, paid_at, 1);
        }
    }
}

/// How many attempts an address may make at once: enough for a person who mistypes a password, and
/// for clients with an old password that retry each request a few times.
pub(super) const FAILURES_MAX: u32 = 10;

/// The time that pays off one failure. 10 attempts a minute find no password of any strength.
pub(super) const FAILURE_COST: Duration = Duration::from_secs(6);

const DEBT_MAX: Duration = Duration::from_secs(FAILURE_COST.as_secs() * FAILURES_MAX as u64);

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
        let bad: Option<IpAddr> = Some([192, 0, 2, 1].into());
        for _ in 0..FAILURES_MAX {
            throttle.charge(bad, start).unwrap();
        }
        let first = throttle.charge(bad, start).unwrap_err();
        assert!(first.is_warning_due);
        assert!(!throttle.charge(bad, start).unwrap_err().is_warning_due);
        throttle.charge(None, start).unwrap();
        // The attempts that were refused have not made the wait longer.
        throttle.charge(bad, start + FAILURE_COST).unwrap();
        throttle.charge(bad, start + FAILURE_COST).unwrap_err();
        let later = start + FAILURE_COST + WARNING_INTERVAL + DEBT_MAX;
        for _ in 0..FAILURES_MAX {
            throttle.charge(bad, later).unwrap();
        }
        assert!(throttle.charge(bad, later).unwrap_err().is_warning_due);
    }

    #[test]
    fn successful_attempts_cost_nothing() {
        let (mut throttle, now) = (Throttle::new(), Instant::now());
        for _ in 0..100 {
            throttle.charge(None, now).unwrap();
            throttle.refund(None);
        }
        throttle.refund(Some([192, 0, 2, 1].into()));
    }
}
