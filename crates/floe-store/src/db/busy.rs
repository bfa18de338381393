//! Waits for processes that have locked a database.

use std::thread;
use std::time::{Duration, Instant};

use crate::locks::wait_for_database;

/// How long a query waits for a process that has locked the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BusyPolicy {
    /// At most this long, without a notification.
    Timeout(Duration),
    /// As the [`LockWait`](crate::locks::LockWait) of the current thread says.
    CurrentScope,
}

/// Waits until a condition holds. Returns `false` if the wait timed out.
pub(super) fn wait_until(policy: BusyPolicy, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut times = 0..;
    while !holds() {
        match policy {
            BusyPolicy::Timeout(time) if start.elapsed() >= time => return false,
            BusyPolicy::Timeout(_) => thread::sleep(WRITER_POLL_INTERVAL),
            BusyPolicy::CurrentScope => {
                if !times.next().is_some_and(wait_for_database) {
                    return false;
                }
            }
        }
    }
    true
}

/// The interval between two checks for a lock directory. It is short beside the time of a commit.
const WRITER_POLL_INTERVAL: Duration = Duration::from_millis(5);
