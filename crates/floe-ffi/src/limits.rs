//! The bounds and intervals of an engine.

use std::time::Duration;

/// The limits that a host can set.
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
