//! The rate of a transfer over the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

/// Counts bytes, and remembers the counts of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Rate {
    total: u64,
    /// The time of the last bytes.
    last: Duration,
    /// Times and the totals at them, oldest first.
    samples: VecDeque<(Duration, u64)>,
}

impl Rate {
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds bytes, or removes those of a transfer that begins again.
    pub(super) fn add(&mut self, bytes: i64, now: Duration) {
        let is_due = self
            .samples
            .back()
            .is_none_or(|(last, _)| now.saturating_sub(*last) >= SAMPLE_INTERVAL);
        if is_due {
            self.samples.push_back((now, self.total));
        }
        while self.samples.len() > 1 && now.saturating_sub(self.samples[1].0) >= WINDOW {
            self.samples.pop_front();
        }
        self.last = now;
        self.total = self.total.saturating_add_signed(bytes);
    }

    /// Returns the bytes per second over the last seconds. A transfer without bytes becomes slower.
    pub(super) fn per_second(&self, now: Duration) -> f64 {
        let begin = now.saturating_sub(WINDOW);
        if self.last < begin {
            return 0.0;
        }
        let is_older = |(time, _): &&(Duration, u64)| *time <= begin;
        let first = self.samples.iter().rev().find(is_older);
        let Some((time, before)) = first.or_else(|| self.samples.front()) else {
            return 0.0;
        };
        let elapsed = now.saturating_sub((*time).max(begin)).max(SAMPLE_INTERVAL);
        self.total.saturating_sub(*before) as f64 / elapsed.as_secs_f64()
    }
}

/// A longer window settles, a shorter one shows changes.
const WINDOW: Duration = Duration::from_secs(5);

const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_follows_changes_within_the_window() {
        let at = Duration::from_millis;
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(at(1000)), 0.0);
        for millis in (0..10_000).step_by(100) {
            rate.add(1000, at(millis));
        }
        let steady = rate.per_second(at(10_000));
        assert!((9_500.0..10_600.0).contains(&steady), "{steady}");
        assert!(rate.per_second(at(14_000)) < 3_000.0);
        assert_eq!(rate.per_second(at(16_000)), 0.0);
        assert!(rate.samples.len() <= 22, "{}", rate.samples.len());
    }
}
