//! Waiting for a condition.

use std::time::{Duration, Instant};

/// Polls until a condition is true. Panics with `what` after a timeout.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Far longer than any single step of these tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);
