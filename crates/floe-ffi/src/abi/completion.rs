//! Completions whose payload the host owns until it releases it.

use super::structs::FloeCompletion;
use crate::completion::Completion;

impl FloeCompletion {
    /// Creates a completion whose payload the host will release.
    pub(super) fn owned(completion: Completion) -> FloeCompletion {
        let mut lent = FloeCompletion::lent(&completion);
        let mut payload = std::mem::ManuallyDrop::new(completion.payload);
        lent.capacity = payload.capacity();
        lent.payload = match payload.capacity() {
            0 => std::ptr::null_mut(),
            _ => payload.as_mut_ptr().cast(),
        };
        lent
    }

    pub(super) fn release(&mut self) {
        let payload = std::mem::replace(&mut self.payload, std::ptr::null_mut());
        let (len, capacity) = (self.payload_len, self.capacity);
        (self.payload_len, self.capacity) = (0, 0);
        if !payload.is_null() && capacity > 0 {
            // SAFETY: `owned` created it from a vector with this length and capacity, and the host
            // guarantees that it passes the same values back.
            drop(unsafe { Vec::from_raw_parts(payload.cast::<u8>(), len, capacity) });
        }
    }
}
