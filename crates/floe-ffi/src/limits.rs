//! The bounds and intervals of an engine.

use std::time::Duration;

/// The limits that a host can set. Zero selects the default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests of one thread that the engine has not taken yet.
    pub(crate) per_thread: usize,
    /// Requests that the engine has taken and whose completion the host has not taken.
    pub(crate) in_flight: usize,
    /// Bytes of accepted payloads that no handler has read, without those stored in the request
    /// itself.
    pub(crate) payload_bytes: usize,
    /// Threads for queries.
    pub(crate) query_workers: usize,
    /// Threads for copies, verifications and dumps.
    pub(crate) copy_workers: usize,
    /// The shortest time between two progress reports.
    pub(crate) progress_interval: Duration,
    /// The time between two reports of a slow request.
    pub(crate) slow_after: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // 8 MiB for requests of 128 bytes.
            per_thread: 64 * 1024,
            // The same number again, so that one busy thread can fill both.
            in_flight: 64 * 1024,
            // A few payloads of the maximum length.
            payload_bytes: 256 << 20,
            // Queries mostly wait for the network or the disk.
            query_workers: 8,
            // Each copy uses all cores by itself, but several can wait for different networks.
            copy_workers: 4,
            // A person cannot follow faster updates.
            progress_interval: Duration::from_millis(100),
            // Longer than any query that does not wait for the network.
            slow_after: Duration::from_secs(5),
        }
    }
}

/// The number of events in a queue. Further events are counted as lost.
pub(crate) const EVENTS_MAX: usize = 1024;
