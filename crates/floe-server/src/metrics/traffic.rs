//! The traffic of a server in the last hours, for the page about its store.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The work of a server in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The number of requests with a response.
    pub(crate) requests: u64,
    /// The bytes that clients have taken.
    pub(crate) sent_bytes: u64,
}

/// The traffic since the start, noted each minute for a day.
#[derive(Debug, Default)]
pub(super) struct TrafficLog {
    notes: VecDeque<(Instant, Traffic)>,
}

impl TrafficLog {
    /// Notes the traffic since the start, if the last note is old.
    pub(super) fn note(&mut self, now: Instant, traffic: impl FnOnce() -> Traffic) {
        let is_new = |(noted, _): &(Instant, Traffic)| now.duration_since(*noted) < INTERVAL;
        if self.notes.back().is_some_and(is_new) {
            return;
        }
        self.notes.push_back((now, traffic()));
        // The oldest note is one of a day ago.
        while let Some((second, _)) = self.notes.get(1)
            && now.duration_since(*second) >= DAY
        {
            self.notes.pop_front();
        }
    }

    /// Returns the traffic in a time of at most a day before `now`, to a minute. `total` is that
    /// since the start.
    pub(super) fn within(&self, time: Duration, now: Instant, total: Traffic) -> Traffic {
        let is_before = |(noted, _): &(Instant, Traffic)| now.duration_since(*noted) >= time;
        let before = self.notes.partition_point(is_before);
        // A server without such a note began later.
        let begin = before.checked_sub(1).and_then(|last| self.notes.get(last));
        let begin = begin.map(|(_, traffic)| *traffic).unwrap_or_default();
        Traffic {
            requests: total.requests.wrapping_sub(begin.requests),
            sent_bytes: total.sent_bytes.wrapping_sub(begin.sent_bytes),
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(requests: u64) -> Traffic {
        Traffic {
            requests,
            sent_bytes: 10 * requests,
        }
    }

    /// A request in each second.
    #[test]
    fn traffic_of_the_last_hours_is_exact_to_a_minute() {
        let start = Instant::now();
        let mut log = TrafficLog::default();
        for second in 0..200_000_u64 {
            let now = start + Duration::from_secs(second);
            log.note(now, || traffic(second));
            if second % 997 != 0 {
                continue;
            }
            for time in [HOUR, DAY] {
                let found = log.within(time, now, traffic(second));
                let expected = second.min(time.as_secs());
                let late = found.requests - expected;
                assert!(late < 60, "{found:?} at {second}");
                assert_eq!(found.sent_bytes, 10 * found.requests);
            }
        }
        assert!(log.notes.len() <= 24 * 60 + 2, "{}", log.notes.len());
    }

    #[test]
    fn traffic_of_a_new_server_is_that_since_its_start() {
        let log = TrafficLog::default();
        assert_eq!(log.within(HOUR, Instant::now(), traffic(7)), traffic(7));
    }
}
