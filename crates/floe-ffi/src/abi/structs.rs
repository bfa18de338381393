//! The structs and numbers of floe.h.

use std::ffi::c_void;

pub use crate::callback::{FloeCallback, FloeCompletion};

/// Takes a piece of a NAR, on a worker; anything but 0 ends the request.
pub type FloeSink =
    unsafe extern "C" fn(context: *mut c_void, data: *const c_void, len: usize) -> i32;

/// How an engine is opened. What is zero has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FloeEngineOptions {
    /// The size of this struct as the host knows it.
    pub struct_size: usize,
    /// Receives completions on the engine thread; NULL: they wait in a queue.
    pub callback: Option<FloeCallback>,
    /// PayloadRef to the callback.
    pub context: *mut c_void,
    /// In which events are encoded.
    pub codec: u32,
    /// Threads for questions.
    pub query_workers: u32,
    /// Threads for moves.
    pub copy_workers: u32,
    /// Requests of one thread that may wait.
    pub per_thread: u32,
    /// Requests that may be in flight.
    pub in_flight: u64,
    /// Bytes of payloads that may wait.
    pub payload_bytes: u64,
    /// How often progress is told at most, in milliseconds.
    pub progress_interval_ms: u32,
    /// After how long a request is reported as slow, in milliseconds.
    pub slow_after_ms: u32,
}

/// A request. What is zero has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FloeRequest {
    /// The size of this struct as the host knows it.
    pub struct_size: usize,
    /// Its number in the definition of the messages.
    pub method: u32,
    /// In which the payload is encoded, and the reply will be.
    pub codec: u32,
    /// The encoded message.
    pub payload: *const c_void,
    /// Its length in bytes.
    pub payload_len: usize,
    /// Comes back with each completion.
    pub tag: u64,
    /// How long it may take, in milliseconds.
    pub deadline_ms: u64,
    /// [`WANTS_PROGRESS`], [`HAS_DESCRIPTOR`].
    pub flags: u32,
    /// Where a NAR goes, with [`HAS_DESCRIPTOR`].
    pub descriptor: i32,
    /// Where a NAR goes, piece by piece.
    pub sink: Option<FloeSink>,
    /// PayloadRef to the sink.
    pub sink_context: *mut c_void,
}

/// The request is to be told of its progress.
pub const WANTS_PROGRESS: u32 = 1;

/// The NAR goes to the descriptor of the request.
pub const HAS_DESCRIPTOR: u32 = 2;
