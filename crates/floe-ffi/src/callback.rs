//! The function of a host that receives completions, and the record that it is given.
#![allow(unsafe_code)]

use std::ffi::c_void;

use crate::completion::Completion;

/// Called by the engine with a completion; both are good until it returns.
pub type FloeCallback =
    unsafe extern "C" fn(context: *mut c_void, completion: *const FloeCompletion);

/// What becomes of a request, or an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FloeCompletion {
    /// The size of this struct as its writer knows it.
    pub struct_size: usize,
    /// The number of the request.
    pub request: u64,
    /// The tag of the request.
    pub tag: u64,
    /// What it says: see `floe_kind` in the header.
    pub kind: u32,
    /// The number of the method, or of the event.
    pub method: u32,
    /// In which the payload is encoded.
    pub codec: u32,
    /// Zero.
    pub reserved: u32,
    /// The encoded message.
    pub payload: *mut c_void,
    /// Its length in bytes.
    pub payload_len: usize,
    /// The library's own.
    pub capacity: usize,
}

/// A function of the host and what it wants to be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: FloeCallback,
    context: *mut c_void,
}

// SAFETY: the header says that the callback is called on a thread of the engine; the library itself
// never looks at what the context points to.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    pub(crate) fn new(function: FloeCallback, context: *mut c_void) -> Callback {
        Callback { function, context }
    }

    /// Calls it. An exception that would leave it ends the process.
    #[inline]
    pub(crate) fn call(&self, completion: &Completion) {
        let lent = FloeCompletion::lent(completion);
        // SAFETY: the host promised that both stay good as long as the engine may call.
        unsafe { (self.function)(self.context, &lent) };
    }
}

impl FloeCompletion {
    /// One whose payload stays good while `completion` lives.
    pub(crate) fn lent(completion: &Completion) -> FloeCompletion {
        FloeCompletion {
            struct_size: size_of::<FloeCompletion>(),
            request: completion.request,
            tag: completion.tag,
            kind: completion.kind as u32,
            method: completion.method,
            codec: completion.codec as u32,
            reserved: 0,
            payload: completion.payload.as_ptr().cast_mut().cast(),
            payload_len: completion.payload.len(),
            capacity: 0,
        }
    }
}
