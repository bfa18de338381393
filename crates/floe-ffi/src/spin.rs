//! How long a thread spins before it sleeps.
//!
//! Sleeping and waking up costs both threads several microseconds, and tens of them if a core must
//! wake up too. Spinning is cheaper if the answer comes soon, and a waste otherwise. The last wait
//! predicts the next one. A spinning thread yields its core from time to time, because the thread
//! that it waits for may need it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Limits the number of spinning callers. One core stays free for the engine thread, for which they
/// wait.
#[derive(Debug)]
pub(crate) struct SpinLimiter {
    spinning: AtomicUsize,
    most: usize,
}

impl SpinLimiter {
    pub(crate) fn new(cores: usize) -> SpinLimiter {
        let (spinning, most) = (AtomicUsize::new(0), cores.saturating_sub(1));
        SpinLimiter { spinning, most }
    }

    /// Calls `spin` unless too many callers are spinning.
    pub(crate) fn spin(&self, spin: impl FnOnce()) {
        if self.spinning.fetch_add(1, Ordering::Relaxed) < self.most {
            spin();
        }
        self.spinning.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A spin time that adapts to the last wait.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    was_short: AtomicBool,
}

impl AdaptiveSpin {
    /// Returns the spin time of the next wait.
    pub(crate) fn duration(&self) -> Duration {
        if self.was_short.load(Ordering::Relaxed) {
            LONG
        } else {
            SHORT
        }
    }

    /// Records a wait that began at `begin` and has ended, with or without sleep.
    pub(crate) fn record_wait(&self, begin: Instant) {
        let is_short = begin.elapsed() < LONG;
        if self.was_short.load(Ordering::Relaxed) != is_short {
            self.was_short.store(is_short, Ordering::Relaxed);
        }
    }
}

/// Half the cost of sleeping and waking up on an active machine. A thread that spins in vain loses
/// no more than a short wait gains.
const SHORT: Duration = Duration::from_micros(5);

/// More than two wake-ups of idle cores of a virtual machine, measured at 16 to 29 microseconds for
/// both. Callers that submit again after each reply therefore keep spinning.
const LONG: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn adaptive_spin_is_long_only_after_short_wait() {
        let spin = AdaptiveSpin::default();
        assert_eq!(spin.duration(), SHORT);
        // A wait that ended before it began counts as short.
        spin.record_wait(Instant::now() + Duration::from_secs(60));
        assert_eq!(spin.duration(), LONG);
        let begin = Instant::now();
        std::thread::sleep(LONG);
        spin.record_wait(begin);
        assert_eq!(spin.duration(), SHORT);
    }

    #[test]
    fn spin_limiter_leaves_one_core_free() {
        let spun = |cores| {
            let (spin_limiter, count) = (SpinLimiter::new(cores), Cell::new(0));
            let count_one = || count.set(count.get() + 1);
            spin_limiter.spin(|| {
                count_one();
                spin_limiter.spin(|| {
                    count_one();
                    spin_limiter.spin(count_one);
                });
                spin_limiter.spin(count_one);
            });
            count.get()
        };
        assert_eq!([spun(1), spun(2), spun(3)], [0, 1, 3]);
    }
}
