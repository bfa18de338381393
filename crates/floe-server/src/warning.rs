//! Warnings that must not fill the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A warning that many events would repeat.
#[derive(Debug, Default)]
pub(crate) struct RepeatedWarning {
    latest: Mutex<Option<Instant>>,
}

impl RepeatedWarning {
    /// Whether the warning has to be shown now: it was not shown within [`WARNING_INTERVAL`].
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut latest = self.latest.lock();
        let is_due = latest.is_none_or(|latest| now.duration_since(latest) >= WARNING_INTERVAL);
        if is_due {
            *latest = Some(now);
        }
        is_due
    }
}

/// How long a warning is not repeated.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_is_repeated_once_a_minute() {
        let (warning, start) = (RepeatedWarning::default(), Instant::now());
        assert!(warning.is_due(start));
        assert!(!warning.is_due(start + Duration::from_secs(59)));
        assert!(warning.is_due(start + Duration::from_secs(60)));
        assert!(!warning.is_due(start + Duration::from_secs(61)));
    }
}
