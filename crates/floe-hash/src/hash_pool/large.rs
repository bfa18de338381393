//! The stream of a large message: a second thread hashes it as soon as a core is idle.

use std::sync::Arc;

use crate::Sha256;
use crate::idle_cores::IdleCores;

use super::offloaded::OffloadedStream;

#[derive(Debug)]
pub(super) struct LargeStream {
    hasher: Hasher,
    idle_cores: Arc<IdleCores>,
    /// The number of bytes that are still to come.
    left: u64,
    /// An idle core is of use as soon as only so many bytes are left.
    check_at: u64,
}

#[derive(Debug)]
enum Hasher {
    Direct(Sha256),
    Offloaded(OffloadedStream),
}

impl LargeStream {
    /// Makes the stream of a message of `len` bytes.
    pub(super) fn new(len: u64, idle_cores: &Arc<IdleCores>) -> LargeStream {
        LargeStream {
            hasher: Hasher::Direct(Sha256::new()),
            idle_cores: idle_cores.clone(),
            left: len,
            check_at: len,
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Hasher::Direct(hasher) = &self.hasher
            && self.left <= self.check_at
            && self.left >= OFFLOADED_LEN_MIN
        {
            self.check_at = self.left.saturating_sub(CHECK_INTERVAL);
            if let Some(core) = self.idle_cores.try_occupy()
                && let Some(stream) = OffloadedStream::start(hasher.clone(), core)
            {
                self.hasher = Hasher::Offloaded(stream);
            }
        }
        self.left = self.left.saturating_sub(bytes.len() as u64);
        match &mut self.hasher {
            Hasher::Direct(hasher) => hasher.update(bytes),
            Hasher::Offloaded(stream) => stream.update(bytes),
        }
    }

    pub(super) fn finish(self) -> [u8; 32] {
        match self.hasher {
            Hasher::Direct(hasher) => hasher.finish(),
            Hasher::Offloaded(stream) => stream.finish(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_offloaded(&self) -> bool {
        matches!(self.hasher, Hasher::Offloaded(_))
    }
}

/// After how many bytes the stream looks for an idle core again.
const CHECK_INTERVAL: u64 = 1024 * 1024;

/// The number of remaining bytes that is worth the start of a second thread.
const OFFLOADED_LEN_MIN: u64 = 8 * 1024 * 1024;
