//! A request on its way from a thread of the host to the engine thread.

use std::fs::File;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use floe_messages::{Codec, Method};

use crate::completion::Waiter;
use crate::status::Status;

/// A request of the host.
pub(crate) struct Request {
    pub(crate) id: u64,
    /// A value chosen by the host, returned with each completion.
    pub(crate) tag: u64,
    /// The deadline, in milliseconds since the engine was opened.
    pub(crate) deadline: Option<NonZeroU64>,
    pub(crate) extra: Option<Box<Extra>>,
    pub(crate) method: Method,
    pub(crate) codec: Codec,
    pub(crate) wants_progress: bool,
    pub(crate) payload: Payload,
}

/// The fields that few requests need.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) sink: Option<Sink>,
    pub(crate) waiter: Option<Arc<Waiter>>,
}

/// The destination of a NAR, used by a worker.
pub(crate) enum Sink {
    /// A function of the host. An error ends the request.
    Function(SinkFn),
    Descriptor(File),
}

/// Receives the next bytes, or returns an error text.
pub(crate) type SinkFn = Box<dyn FnMut(&[u8]) -> Result<(), String> + Send>;

/// The payload of a request.
pub(crate) enum Payload {
    /// A short payload is stored in the request itself, without an allocation.
    Inline(u8, [u8; INLINE_LEN]),
    Heap(Counted),
}

/// Makes a request 128 bytes long: two cache lines.
pub(crate) const INLINE_LEN: usize = 71;

/// Bytes that count against the budget of an engine as long as they live.
pub(crate) struct Counted {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

/// The number of waiting payload bytes, and its bound.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    most: usize,
}

impl Payload {
    /// Copies a long payload of a caller, and borrows a short one until the returned function
    /// stores it. Does everything that can fail, so that the function cannot fail. Returns `Busy`
    /// if too many payload bytes are waiting, and `NoMemory`.
    #[inline]
    pub(crate) fn prepare<'a>(
        bytes: &'a [u8],
        budget: &Arc<Budget>,
    ) -> Result<impl FnOnce() -> Payload + use<'a>, Status> {
        let long = if bytes.len() <= INLINE_LEN {
            None
        } else {
            Some(Counted::copy(bytes, budget)?)
        };
        Ok(move || match long {
            Some(counted) => Payload::Heap(counted),
            None => {
                let mut inline = [0; INLINE_LEN];
                inline[..bytes.len()].copy_from_slice(bytes);
                Payload::Inline(bytes.len() as u8, inline)
            }
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Inline(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Payload::Heap(counted) => &counted.bytes,
        }
    }
}

impl Counted {
    fn copy(bytes: &[u8], budget: &Arc<Budget>) -> Result<Counted, Status> {
        budget.acquire(bytes.len())?;
        let mut copy = Vec::new();
        if copy.try_reserve_exact(bytes.len()).is_err() {
            budget.release(bytes.len());
            return Err(Status::NoMemory);
        }
        copy.extend_from_slice(bytes);
        let (bytes, budget) = (copy, budget.clone());
        Ok(Counted { bytes, budget })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.release(self.bytes.len());
    }
}

impl Budget {
    pub(crate) fn new(most: usize) -> Arc<Budget> {
        let used = AtomicUsize::new(0);
        Arc::new(Budget { used, most })
    }

    fn acquire(&self, len: usize) -> Result<(), Status> {
        let before = self.used.fetch_add(len, Ordering::Relaxed);
        if before.saturating_add(len) > self.most {
            self.release(len);
            return Err(Status::Busy);
        }
        Ok(())
    }

    fn release(&self, len: usize) {
        self.used.fetch_sub(len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_128_bytes() {
        assert_eq!(size_of::<Request>(), 128);
    }

    #[test]
    fn budget_counts_only_live_long_payloads() {
        let budget = Budget::new(1000);
        let copy = |bytes: &[u8]| Payload::prepare(bytes, &budget).map(|store| store());
        let short = copy(&[7; INLINE_LEN]).unwrap();
        assert_eq!(short.bytes(), [7; INLINE_LEN]);
        let long = copy(&[8; 900]).unwrap();
        assert_eq!(long.bytes(), [8; 900]);
        assert!(matches!(copy(&[9; 101]), Err(Status::Busy)));
        drop(long);
        copy(&[9; 1000]).unwrap();
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
