//! How long the steps of receiving a NAR take.

use std::time::{Duration, Instant};

/// The times that a worker needs for a NAR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveTimes {
    /// Waiting for bytes of the body, or reading them from a file.
    pub fetch: Duration,
    /// Decoding.
    pub decode: Duration,
    /// Hashing the body and the NAR, as far as the worker does that itself.
    pub hash: Duration,
    /// Writing files.
    pub write: Duration,
}

impl ReceiveTimes {
    /// Adds the times of another NAR.
    pub fn add(&mut self, other: ReceiveTimes) {
        self.fetch += other.fetch;
        self.decode += other.decode;
        self.hash += other.hash;
        self.write += other.write;
    }
}

/// Does some work, and adds its time to `sum`.
pub(crate) fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    *sum += began.elapsed();
    result
}
