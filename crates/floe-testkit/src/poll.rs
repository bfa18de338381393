//! Waiting for a condition.

use std::time::{Duration, Instant};

/// Polls until a condition is true. Panics with `what` after a timeout.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_at_most(TIMEOUT, what, condition);
}

/// Does the same with another timeout.
#[track_caller]
pub fn wait_at_most(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        // The one poll of all tests.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Far longer than any single step of these tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);
