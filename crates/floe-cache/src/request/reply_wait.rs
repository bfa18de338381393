//! How long a request waits for a server before floe sends it again over another connection.
//!
//! One connection of many can be dead while the server works: a router dropped it, or one
//! machine behind a load balancer hangs. floe therefore waits only a moment at first, which depends
//! on the usual time of a reply, and sends the request again. Each further wait is twice as long,
//! up to `stalled-download-timeout`, after which the request has failed. A slow server thus gets
//! few superfluous requests, and a body continues where it stopped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The usual time until a cache replies to a request of one kind, as a moving average.
#[derive(Debug, Default)]
pub(crate) struct ReplyTime {
    /// In microseconds; 0 before the first reply.
    micros: AtomicU64,
}

impl ReplyTime {
    /// Records the time of a reply.
    pub(crate) fn record(&self, time: Duration) {
        let new = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        // All requests run on one thread, so no reply is lost.
        let average = match self.micros.load(Ordering::Relaxed) {
            0 => new,
            old => old - old / 8 + new / 8,
        };
        self.micros.store(average, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        let micros = self.micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }
}

/// The wait of one request. It grows with each attempt.
#[derive(Debug)]
pub(crate) struct ReplyWait {
    wait: Duration,
    max: Duration,
    /// Whether the last wait ended before its maximum, so that another attempt is free.
    has_expired: bool,
}

impl ReplyWait {
    /// Makes the wait for a request to a cache with this time of replies. `max` is the time
    /// after which a request has failed.
    pub(crate) fn new(usual: &ReplyTime, max: Duration) -> ReplyWait {
        let usual = usual.get().map(|time| time.saturating_mul(USUAL_FACTOR));
        let first = usual.map_or(FIRST_UNKNOWN, |time| time.max(FIRST_MIN));
        ReplyWait {
            wait: first.min(max),
            max,
            has_expired: false,
        }
    }

    /// Makes the wait of a request that is not sent a second time before it has failed.
    pub(crate) fn whole(max: Duration) -> ReplyWait {
        ReplyWait {
            wait: max,
            max,
            has_expired: false,
        }
    }

    /// Makes the wait of a request that writes a small object. `max` is the time after which it has
    /// failed.
    pub(crate) fn for_write(max: Duration) -> ReplyWait {
        ReplyWait {
            wait: FIRST_WRITE.min(max),
            max,
            has_expired: false,
        }
    }

    /// Returns the time to wait for the next bytes.
    pub(crate) fn time(&self) -> Duration {
        self.wait
    }

    /// Records that the wait has ended without bytes. Another attempt is free if the wait was
    /// shorter than its maximum; otherwise the request has failed.
    pub(crate) fn expire(&mut self) {
        self.has_expired = self.wait < self.max;
        self.wait = self.wait.saturating_mul(2).min(self.max);
    }

    /// Makes the wait for further bytes of a body.
    pub(crate) fn for_rest(usual: &ReplyTime, max: Duration) -> ReplyWait {
        let wait = ReplyWait::new(usual, max);
        ReplyWait {
            wait: wait
                .wait
                .clamp(REST_MIN.min(max), FIRST_UNKNOWN.max(REST_MIN).min(max)),
            ..wait
        }
    }

    /// Waits for the whole timeout from now on: the body cannot continue over another connection.
    pub(crate) fn wait_for_timeout(&mut self) {
        self.wait = self.max;
    }

    /// Whether the last attempt ended because its wait was over, before the timeout. Forgets it.
    pub(crate) fn take_free_attempt(&mut self) -> bool {
        std::mem::take(&mut self.has_expired)
    }
}

/// The first wait is this many times the usual time of a reply. A new connection with TLS takes
/// four round trips.
const USUAL_FACTOR: u32 = 8;

/// The shortest first wait: far above the jitter of a network, and short for a user.
const FIRST_MIN: Duration = Duration::from_millis(500);

/// The first wait of a write. A server may have to store the object on a slow disk before it
/// replies.
const FIRST_WRITE: Duration = Duration::from_secs(8);

/// The first wait if no reply has come yet.
const FIRST_UNKNOWN: Duration = Duration::from_secs(4);

/// The shortest first wait for further bytes of a body, over a connection that many bodies may
/// share.
const REST_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn wait_doubles_until_it_is_the_whole_timeout() {
        let mut reply_wait = ReplyWait::new(&ReplyTime::default(), 15_000 * MS);
        for wait in [4000, 8000] {
            assert_eq!(reply_wait.time(), wait * MS);
            reply_wait.expire();
            assert!(reply_wait.take_free_attempt());
        }
        for _ in 0..3 {
            assert_eq!(reply_wait.time(), 15_000 * MS);
            reply_wait.expire();
            assert!(!reply_wait.take_free_attempt());
        }
    }

    #[test]
    fn first_wait_depends_on_usual_reply() {
        for (usual, first) in [
            (0, 500),
            (50, 500),
            (100, 800),
            (1000, 8000),
            (5000, 40_000),
        ] {
            let time = ReplyTime::default();
            (0..3).for_each(|_| time.record(usual * MS));
            let wait = ReplyWait::new(&time, 300_000 * MS).time().as_millis();
            assert!(wait.abs_diff(first) < 10, "{usual}: {wait}");
        }
        // A body that flows needs no more than a moment, also from a server that begins slowly.
        for (usual, first) in [(50, 1000), (200, 1600), (5000, 4000)] {
            let time = ReplyTime::default();
            time.record(usual * MS);
            let wait = ReplyWait::for_rest(&time, 300_000 * MS).time().as_millis();
            assert!(wait.abs_diff(first) < 10, "{usual}: {wait}");
        }
        let short = ReplyWait::new(&ReplyTime::default(), 100 * MS);
        assert_eq!(short.time(), 100 * MS);
    }
}
