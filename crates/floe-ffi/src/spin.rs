//! How long a thread turns for what it waits for before it sleeps.
//!
//! To sleep and be woken costs both sides: several microseconds, and tens of them where a core has
//! to be woken with the thread. Turning is cheaper while answers come soon, and a waste otherwise;
//! which it is, the last wait tells. Who turns offers its core to others now and then, as one of
//! them may be who it waits for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The spin_limiter that spin. One core is left to the engine, which they wait for.
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

    /// Calls `spin` unless as many spin_limiter spin already as may.
    pub(crate) fn spin(&self, spin: impl FnOnce()) {
        if self.spinning.fetch_add(1, Ordering::Relaxed) < self.most {
            spin();
        }
        self.spinning.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What waits of one kind have been like.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    was_short: AtomicBool,
}

impl AdaptiveSpin {
    /// How long the next wait may spin.
    pub(crate) fn duration(&self) -> Duration {
        match self.was_short.load(Ordering::Relaxed) {
            true => LONG,
            false => SHORT,
        }
    }

    /// To be told of each wait when it is over, whether it slept or not.
    pub(crate) fn record_wait(&self, begin: Instant) {
        let is_short = begin.elapsed() < LONG;
        if self.was_short.load(Ordering::Relaxed) != is_short {
            self.was_short.store(is_short, Ordering::Relaxed);
        }
    }
}

/// Half of what sleeping and being woken costs on a machine that is awake: what a thread loses by
/// spinning in vain, it has won in the next wait that is short.
const SHORT: Duration = Duration::from_micros(5);

/// More than two wakes of idle cores of a virtual machine took where that was measured (16 to 29
/// microseconds for both), so that who asks again after each answer is found to be worth it.
const LONG: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn patience_is_long_only_after_a_short_wait() {
        let spin = AdaptiveSpin::default();
        assert_eq!(spin.duration(), SHORT);
        // A wait that ended before it began cannot have been long.
        spin.record_wait(Instant::now() + Duration::from_secs(60));
        assert_eq!(spin.duration(), LONG);
        let begin = Instant::now();
        std::thread::sleep(LONG);
        spin.record_wait(begin);
        assert_eq!(spin.duration(), SHORT);
    }

    #[test]
    fn callers_leave_one_core_alone() {
        let turned = |cores| {
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
        assert_eq!([turned(1), turned(2), turned(3)], [0, 1, 3]);
    }
}
