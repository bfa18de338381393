//! The function of a host that receives completions, and the record that it gets.
#![expect(unsafe_code, reason = "the library calls a C function")]

use std::ffi::c_void;
use std::mem::{self, ManuallyDrop};
use std::ptr;

use crate::completion::Completion;

/// Receives a completion from the engine. The completion and its payload are valid until it
/// returns.
pub type FloeCallback =
    unsafe extern "C" fn(context: *mut c_void, completion: *const FloeCompletion);

/// A completion of a request, or an event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FloeCompletion {
    /// The size of this struct in the version of its writer.
    pub struct_size: usize,
    /// The number of the request.
    pub request: u64,
    /// The tag of the request.
    pub tag: u64,
    /// The kind: `FLOE_DONE` and so on.
    pub kind: u32,
    /// The number of the method, or of the event.
    pub method: u32,
    /// The encoding of the payload.
    pub codec: u32,
    /// Zero.
    pub reserved: u32,
    /// The encoded message.
    pub payload: *mut c_void,
    /// Its length in bytes.
    pub payload_len: usize,
    /// Private to the library.
    pub capacity: usize,
}

/// A function of the host, with its context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: FloeCallback,
    context: *mut c_void,
}

// SAFETY: the header documents that the callback runs on the engine thread. The library never
// dereferences the context.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    pub(crate) fn new(function: FloeCallback, context: *mut c_void) -> Callback {
        Callback { function, context }
    }

    /// Calls the function. An exception that leaves it ends the process.
    #[inline]
    pub(crate) fn call(&self, completion: &Completion) {
        let lent = FloeCompletion::lent(completion);
        // SAFETY: the host guarantees that both stay valid as long as the engine may call.
        unsafe { (self.function)(self.context, &lent) };
    }
}

impl FloeCompletion {
    /// Returns a record whose payload is valid as long as `completion` lives.
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

    /// Creates a completion whose payload the host will release.
    pub(crate) fn owned(completion: Completion) -> FloeCompletion {
        let mut lent = FloeCompletion::lent(&completion);
        let mut payload = ManuallyDrop::new(completion.payload);
        lent.capacity = payload.capacity();
        lent.payload = match payload.capacity() {
            0 => ptr::null_mut(),
            _ => payload.as_mut_ptr().cast(),
        };
        lent
    }

    pub(crate) fn release(&mut self) {
        let payload = mem::replace(&mut self.payload, ptr::null_mut());
        let (len, capacity) = (self.payload_len, self.capacity);
        (self.payload_len, self.capacity) = (0, 0);
        if !payload.is_null() && capacity > 0 {
            // SAFETY: `owned` created it from a vector with this length and capacity, and the host
            // guarantees that it passes the same values back.
            drop(unsafe { Vec::from_raw_parts(payload.cast::<u8>(), len, capacity) });
        }
    }
}
