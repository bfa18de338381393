//! Measures whether a client takes the bytes of a response too slowly. `Connection::expiry` decides
//! whether its connection is closed.
//!
//! The time limit for a client that takes nothing does not protect the server: a client that takes
//! a byte now and then would hold its connection forever.

use std::time::{Duration, Instant};

/// The rate at which a client takes bytes, measured over windows of [`WINDOW`].
#[derive(Debug)]
pub(crate) struct ReceiveRate {
    window_began: Instant,
    /// How many bytes the connection had sent when the window began.
    sent_before: u64,
    /// When the first of the latest windows began in which the client was too slow.
    slow_since: Option<Instant>,
}

impl ReceiveRate {
    pub(crate) fn new(now: Instant) -> ReceiveRate {
        ReceiveRate {
            window_began: now,
            sent_before: 0,
            slow_since: None,
        }
    }

    /// Begins a new window, because no response is being sent.
    pub(crate) fn reset(&mut self, now: Instant, sent: u64) {
        self.begin_window(now, sent);
        self.slow_since = None;
    }

    /// Notes how many bytes the connection has sent so far. Returns how long the client has taken
    /// fewer than `rate_min` bytes per second.
    pub(crate) fn observe(&mut self, now: Instant, sent: u64, rate_min: u64) -> Option<Duration> {
        let elapsed = now.duration_since(self.window_began);
        if elapsed >= WINDOW {
            let is_slow = sent - self.sent_before < rate_min.saturating_mul(elapsed.as_secs());
            self.slow_since = if is_slow {
                self.slow_since.or(Some(self.window_began))
            } else {
                None
            };
            self.begin_window(now, sent);
        }
        self.slow_since.map(|since| now.duration_since(since))
    }

    fn begin_window(&mut self, now: Instant, sent: u64) {
        self.window_began = now;
        self.sent_before = sent;
    }
}

/// How long the rate is measured. The socket takes bytes in pieces, after pauses of some seconds.
pub(crate) const WINDOW: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RATE_MIN;

    #[test]
    fn client_is_slow_from_the_first_slow_window_on() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut rate = ReceiveRate::new(start);
        assert_eq!(
            rate.observe(at(14), 0, RATE_MIN),
            None,
            "the window is not over"
        );
        let slow = Some(Duration::from_secs(15));
        assert_eq!(rate.observe(at(15), 15 * RATE_MIN - 1, RATE_MIN), slow);
        assert_eq!(
            rate.observe(at(20), u64::MAX / 2, RATE_MIN),
            Some(Duration::from_secs(20))
        );
        assert_eq!(
            rate.observe(at(30), 40 * RATE_MIN, RATE_MIN),
            None,
            "the second was good"
        );
        rate.observe(at(45), 40 * RATE_MIN, RATE_MIN);
        rate.reset(at(46), 40 * RATE_MIN);
        assert_eq!(
            rate.observe(at(60), 40 * RATE_MIN, RATE_MIN),
            None,
            "a new response"
        );
    }
}
