//! Whether the receiver sleeps and whether it has closed, in one word. All submitters read the
//! word, and it rarely changes.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::barrier::Barrier;
use crate::sync::{AtomicU32, Condvar, Mutex, Padded};

pub(crate) struct Parker {
    word: Padded<AtomicU32>,
    pub(crate) barrier: Barrier,
    lock: Mutex<()>,
    woken: Condvar,
}

const PARKED: u32 = 1;
const CLOSED: u32 = 2;

impl Parker {
    pub(crate) fn new(barrier: Barrier) -> Parker {
        Parker {
            word: Padded(AtomicU32::new(0)),
            barrier,
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Wakes the receiver if it sleeps. Call it after each published value. Returns whether the
    /// value will be taken for sure. If not, the receiver was closing at that time, and the queue
    /// knows whether the value will be taken.
    #[inline]
    pub(crate) fn after_publish(&self) -> bool {
        self.barrier.light();
        match self.word.0.load(Ordering::Relaxed) {
            0 => true,
            word => self.handle_flags(word),
        }
    }

    #[cold]
    fn handle_flags(&self, word: u32) -> bool {
        if word & PARKED != 0 {
            self.wake();
        }
        word & CLOSED == 0
    }

    /// Ends the receiver's sleep, or prevents its next one.
    pub(crate) fn wake(&self) {
        if self.word.0.fetch_and(!PARKED, Ordering::AcqRel) & PARKED != 0 {
            // Taking the lock ensures that the receiver is either waiting or has not yet checked
            // the word.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.woken.notify_one();
        }
    }

    /// Sleeps until the receiver is woken or the timeout passes. Returns at once if `is_there`
    /// returns true after the sleep was announced.
    pub(crate) fn park(&self, timeout: Duration, is_there: impl FnOnce() -> bool) {
        self.word.0.fetch_or(PARKED, Ordering::AcqRel);
        self.barrier.heavy();
        if is_there() {
            self.word.0.fetch_and(!PARKED, Ordering::AcqRel);
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.word.0.load(Ordering::Acquire) & PARKED != 0 {
            let woken = self.woken.wait_timeout(guard, timeout);
            let (again, result) = woken.unwrap_or_else(PoisonError::into_inner);
            guard = again;
            if result.timed_out() {
                self.word.0.fetch_and(!PARKED, Ordering::AcqRel);
            }
        }
    }

    /// Marks the channel as closed. For each value published at the same time, either the submitter
    /// sees the mark or the receiver sees the value.
    pub(crate) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Ordering::AcqRel);
        self.barrier.heavy();
    }
}
