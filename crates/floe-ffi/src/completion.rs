//! Completions, and the wait for one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use floe_messages::{Codec, ErrorKind, List, Message};
use parking_lot::{Condvar, Mutex};

/// The kind of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Terminal: the payload is the reply.
    Done = 1,
    /// Terminal: the payload is an `Error`.
    Failed = 2,
    /// Terminal: the request was cancelled. No payload.
    Cancelled = 3,
    /// Terminal: the engine was closed. No payload.
    ShutDown = 4,
    /// Not terminal: the payload is a `Progress`.
    Progress = 16,
    /// An event that belongs to no request; `method` is its number.
    Event = 17,
}

/// A completion or an event for the host.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    pub(crate) request: u64,
    pub(crate) tag: u64,
    pub(crate) kind: Kind,
    /// The number of the method, or of the event.
    pub(crate) method: u32,
    pub(crate) codec: Codec,
    pub(crate) payload: Vec<u8>,
}

impl Completion {
    pub(crate) fn is_event(&self) -> bool {
        self.kind == Kind::Event
    }
}

/// The encoded reply of a request, or the reason why there is none.
pub(crate) type JobOutcome = Result<Vec<u8>, JobError>;

/// The reason why a request has no reply.
#[derive(Debug)]
pub(crate) enum JobError {
    Failed(Failure),
    /// The handler noticed that the request was to end.
    Cancelled,
}

/// The error of a failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Failure {
        let (message, causes) = (message.into(), Vec::new());
        Failure {
            kind,
            message,
            causes,
        }
    }
}

/// Returns a list that borrows these texts.
pub(crate) fn texts(texts: &[String]) -> List<'_, &str> {
    texts.iter().map(String::as_str).collect()
}

/// Encodes a message into a new buffer.
pub(crate) fn encode<'a>(codec: Codec, message: &impl Message<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    codec.encode(message, &mut out);
    out
}

/// The wait of a thread in `floe_call`.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    has_arrived: AtomicBool,
    completion: Mutex<Option<Completion>>,
    arrived: Condvar,
}

impl Waiter {
    pub(crate) fn complete(&self, completion: Completion) {
        *self.completion.lock() = Some(completion);
        self.has_arrived.store(true, Ordering::Release);
        self.arrived.notify_one();
    }

    /// Spins until the completion has arrived or `time` has passed.
    pub(crate) fn spin(&self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            for _ in 0..PAUSES {
                if self.has_arrived.load(Ordering::Acquire) {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }

    /// Sleeps until the terminal completion has arrived. Every accepted request gets one.
    pub(crate) fn wait(&self) -> Completion {
        let mut guard = self.completion.lock();
        loop {
            if let Some(completion) = guard.take() {
                return completion;
            }
            self.arrived.wait(&mut guard);
        }
    }
}

/// The number of pauses between two yields. Yielding takes longer than pausing: two microseconds on
/// a processor where a pause takes 140 cycles; less on others.
const PAUSES: u32 = 40;
