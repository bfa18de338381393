//! The structs and numbers of floe.h.

use std::ffi::c_void;

pub use crate::callback::{FloeCallback, FloeCompletion};

/// Receives a chunk of a NAR, on a worker. Any result but 0 ends the request.
pub type FloeSink =
    unsafe extern "C" fn(context: *mut c_void, data: *const c_void, len: usize) -> i32;

/// The options of an engine. A zero selects the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FloeEngineOptions {
    /// The size of this struct in the version of the host.
    pub struct_size: usize,
    /// Receives completions on the engine thread. NULL: completions wait in a queue.
    pub callback: Option<FloeCallback>,
    /// Passed to the callback.
    pub context: *mut c_void,
    /// The encoding of events.
    pub codec: u32,
    /// The number of threads for queries.
    pub query_workers: u32,
    /// The number of threads for copies.
    pub copy_workers: u32,
    /// The number of waiting requests per thread.
    pub per_thread: u32,
    /// The number of requests in flight.
    pub in_flight: u64,
    /// The number of waiting payload bytes.
    pub payload_bytes: u64,
    /// The shortest time between two progress reports, in milliseconds.
    pub progress_interval_ms: u32,
    /// The time between two reports of a slow request, in milliseconds.
    pub slow_after_ms: u32,
}

/// A request. A zero selects the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FloeRequest {
    /// The size of this struct in the version of the host.
    pub struct_size: usize,
    /// The number of the method.
    pub method: u32,
    /// The encoding of the payload and of the reply.
    pub codec: u32,
    /// The encoded message.
    pub payload: *const c_void,
    /// Its length in bytes.
    pub payload_len: usize,
    /// Returned with each completion.
    pub tag: u64,
    /// The time that the request may take, in milliseconds.
    pub deadline_ms: u64,
    /// [`WANTS_PROGRESS`], [`HAS_DESCRIPTOR`].
    pub flags: u32,
    /// Receives the NAR if [`HAS_DESCRIPTOR`] is set.
    pub descriptor: i32,
    /// Receives the NAR in chunks.
    pub sink: Option<FloeSink>,
    /// Passed to the sink.
    pub sink_context: *mut c_void,
}

/// The request receives progress.
pub const WANTS_PROGRESS: u32 = 1;

/// The NAR is written to the descriptor of the request.
pub const HAS_DESCRIPTOR: u32 = 2;
