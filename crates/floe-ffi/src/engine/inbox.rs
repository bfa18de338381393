//! The inbox of the engine thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::lock;
use crate::pool::JobResult;

/// Everything that other threads pass to the engine thread, except requests.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) cancelled: Vec<u64>,
    pub(super) finished: Vec<JobResult>,
    /// Raised when the engine thread has processed the inbox.
    pub(super) acknowledge: Vec<Arc<Flag>>,
    pub(super) closes: bool,
    /// The engine thread has ended.
    pub(super) is_over: bool,
}

/// A flag that one thread raises and another one waits for.
#[derive(Default)]
pub(super) struct Flag {
    is_up: Mutex<bool>,
    raised: Condvar,
}

impl Flag {
    pub(super) fn raise(&self) {
        *lock(&self.is_up) = true;
        self.raised.notify_all();
    }

    pub(super) fn wait(&self) {
        let mut is_up = lock(&self.is_up);
        while !*is_up {
            is_up = self
                .raised
                .wait(is_up)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
