//! What an engine holds at most, and how long things take.

use std::time::Duration;

/// What a host may choose when it opens an engine; zero means the default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests of one thread that the engine has not taken yet.
    pub(crate) per_thread: usize,
    /// Requests that were taken and whose completion nobody has taken.
    pub(crate) in_flight: usize,
    /// Bytes of payloads that were accepted and not yet worked on, where they are longer than what
    /// lies in a request itself.
    pub(crate) payload_bytes: usize,
    /// Threads that answer questions.
    pub(crate) query_workers: usize,
    /// Threads that move, verify and dump.
    pub(crate) copy_workers: usize,
    /// How often progress is told at most.
    pub(crate) progress_interval: Duration,
    /// After how long, and how often, a request at work is reported as slow.
    pub(crate) slow_after: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // With 128 bytes for a request, 8 MiB.
            per_thread: 64 * 1024,
            // As many again, so that one busy thread fills both and no more.
            in_flight: 64 * 1024,
            // A few payloads of the greatest length.
            payload_bytes: 256 << 20,
            // Questions wait for the network or the disk most of their time.
            query_workers: 8,
            // Each move uses all cores by itself; several wait for different networks.
            copy_workers: 4,
            // As often as an eye can follow.
            progress_interval: Duration::from_millis(100),
            // Longer than any query takes that does not wait for the network.
            slow_after: Duration::from_secs(5),
        }
    }
}

/// Events that may wait in a queue; beyond, they are counted as lost.
pub(crate) const EVENTS_MAX: usize = 1024;
