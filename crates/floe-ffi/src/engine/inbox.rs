//! What other threads hand to the engine thread beside requests.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::lock;
use crate::pool::JobResult;

/// What comes to the engine thread beside requests.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) cancelled: Vec<u64>,
    pub(super) finished: Vec<JobResult>,
    /// Raised when the engine thread has read all inbox up to here.
    pub(super) acknowledge: Vec<Arc<Flag>>,
    pub(super) closes: bool,
    /// The engine thread has ended.
    pub(super) is_over: bool,
}

/// One thread tells another that something has happened.
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
