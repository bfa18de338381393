//! The pauses between two questions for a pin.

use std::time::Duration;

use crate::commands::random;

/// The pauses of a follower. Many machines that start at once do not ask at once, and a cache that
/// fails is asked more and more seldom.
#[derive(Debug)]
pub(super) struct Pauses {
    every: Duration,
    /// The failures since the last success.
    failures: u32,
}

impl Pauses {
    pub(super) fn new(every: Duration) -> Pauses {
        Pauses { every, failures: 0 }
    }

    pub(super) fn after_success(&mut self) -> anyhow::Result<Duration> {
        self.failures = 0;
        jitter(self.every)
    }

    /// Twice the pause before, up to an hour or the usual pause if that is longer.
    pub(super) fn after_failure(&mut self) -> anyhow::Result<Duration> {
        self.failures = self.failures.saturating_add(1);
        let factor = 2_u32.saturating_pow(self.failures);
        let longest = FAILURE_PAUSE_MAX.max(self.every);
        jitter(self.every.saturating_mul(factor).min(longest))
    }
}

/// Returns a time span that differs by at most a tenth.
fn jitter(time: Duration) -> anyhow::Result<Duration> {
    let [byte] = random::<1>()?;
    Ok(time.mul_f64(0.9 + 0.2 * f64::from(byte) / 255.0))
}

/// The longest pause after a failure.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures_and_vary() {
        let mut pauses = Pauses::new(Duration::from_secs(60));
        let within = |pause: Duration, seconds: u64| {
            let usual = Duration::from_secs(seconds);
            assert!(
                pause >= usual.mul_f64(0.89) && pause <= usual.mul_f64(1.11),
                "{pause:?}"
            );
        };
        within(pauses.after_success().unwrap(), 60);
        for seconds in [120, 240, 480, 960, 1920, 3600, 3600] {
            within(pauses.after_failure().unwrap(), seconds);
        }
        within(pauses.after_success().unwrap(), 60);
        within(pauses.after_failure().unwrap(), 120);
        let many: Vec<Duration> = (0..20).map(|_| pauses.after_success().unwrap()).collect();
        assert!(many.iter().any(|pause| pause != &many[0]));
    }
}
