//! The time since the start of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since the start of the machine. Unlike `Instant`, it counts also while the
/// machine sleeps.
pub fn time_since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn time_passes() {
        let before = time_since_boot();
        let pause = Duration::from_millis(2);
        sleep(pause);
        assert!(time_since_boot() >= before + pause);
        assert!(before > Duration::ZERO);
    }
}
