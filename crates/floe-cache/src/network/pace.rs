//! How fast a host gets requests, after it has refused some as too many.
//!
//! The rate rises and falls as the window of TCP does: each refusal halves it, each success raises
//! it a little. Before the first refusal there is no limit. The refusals of requests that were sent
//! before the rate was lowered do not lower it again.

use std::time::{Duration, Instant};

/// The rate of the requests to a host.
#[derive(Debug)]
pub(super) struct Pace {
    /// The time between two requests; zero for no limit.
    interval: Duration,
    /// When the next request may be sent.
    next: Instant,
    lowered_at: Option<Instant>,
    /// The requests that were sent since `counting_since`, to measure the rate without a limit.
    sent: u32,
    counting_since: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            interval: Duration::ZERO,
            next: now,
            lowered_at: None,
            sent: 0,
            counting_since: now,
        }
    }

    /// Takes the next turn to send a request. Returns when that is.
    pub(super) fn take_turn(&mut self, now: Instant) -> Instant {
        if now.duration_since(self.counting_since) > COUNTING_TIME {
            (self.sent, self.counting_since) = (0, now);
        }
        self.sent += 1;
        let turn = self.next.max(now);
        self.next = turn + self.interval;
        turn
    }

    /// Halves the rate, because the host has refused a request that was sent at `sent_at`.
    /// `is_limit` tells whether the host surely has a limit, so that the rate may become low.
    pub(super) fn lower(&mut self, sent_at: Instant, now: Instant, is_limit: bool) {
        if self.lowered_at.is_some_and(|lowered| sent_at < lowered) {
            return;
        }
        self.lowered_at = Some(now);
        self.interval = if self.interval.is_zero() {
            let time = now.duration_since(self.counting_since);
            let measured = time / self.sent.max(1);
            (2 * measured).clamp(INTERVAL_MIN, FIRST_INTERVAL_MAX)
        } else {
            (2 * self.interval).min(if is_limit {
                INTERVAL_MAX
            } else {
                FIRST_INTERVAL_MAX.max(self.interval)
            })
        };
        self.next = now + self.interval;
    }

    /// Raises the rate a little, because a request has succeeded.
    pub(super) fn raise(&mut self) {
        self.interval = self.interval.mul_f64(RAISE);
        if self.interval < INTERVAL_MIN {
            self.interval = Duration::ZERO;
        }
    }
}

/// The time over which the rate without a limit is measured.
const COUNTING_TIME: Duration = Duration::from_secs(5);

/// A shorter interval is none.
const INTERVAL_MIN: Duration = Duration::from_millis(5);

/// The interval after the first refusal. A copy that has just begun has sent few requests, so that
/// its measured rate may be far too low.
const FIRST_INTERVAL_MAX: Duration = Duration::from_millis(50);

/// The longest interval. The requests that wait have taken their turns already, so a longer one
/// would hold them for long after the limit is gone.
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// The factor of the interval for each success: 35 of them double the rate.
const RAISE: f64 = 0.98;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Sends `count` requests, and returns when the last one is sent.
    fn send(pace: &mut Pace, count: usize, mut now: Instant) -> Instant {
        for _ in 0..count {
            now = pace.take_turn(now);
        }
        now
    }

    #[test]
    fn there_is_no_limit_before_first_refusal() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        assert_eq!(send(&mut pace, 1000, began), began);
        (0..1000).for_each(|_| pace.raise());
        assert_eq!(send(&mut pace, 1000, began), began);
    }

    #[test]
    fn first_refusal_halves_measured_rate() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        send(&mut pace, 100, began);
        let now = began + 1000 * MS;
        pace.lower(began, now, true);
        assert_eq!(send(&mut pace, 10, now), now + 10 * 20 * MS);
    }

    #[test]
    fn refusals_of_earlier_requests_count_once() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        let now = began + 500 * MS;
        for _ in 0..25 {
            pace.lower(began, now, true);
        }
        assert_eq!(pace.interval, FIRST_INTERVAL_MAX);
        pace.lower(now, now + MS, true);
        assert_eq!(pace.interval, 2 * FIRST_INTERVAL_MAX);
        for step in 1..100 {
            pace.lower(now + step * MS, now + step * MS, true);
        }
        assert_eq!(pace.interval, INTERVAL_MAX);
    }

    #[test]
    fn host_that_may_only_restart_keeps_a_usable_rate() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        for step in 0..100 {
            pace.lower(began + step * MS, began + step * MS, false);
        }
        assert_eq!(pace.interval, FIRST_INTERVAL_MAX);
    }

    #[test]
    fn successes_lift_the_limit_in_the_end() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        pace.lower(began, began + 500 * MS, true);
        let first = pace.interval;
        (0..35).for_each(|_| pace.raise());
        assert!(pace.interval < first * 51 / 100);
        (0..1000).for_each(|_| pace.raise());
        assert_eq!(pace.interval, Duration::ZERO);
    }
}
