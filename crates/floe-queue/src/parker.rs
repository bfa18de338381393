//! Whether the receiver sleeps, and whether the ingress is closed: one word that all submitters
//! read and that hardly ever changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::barrier::Barrier;
use crate::sync::{AtomicU32, Condvar, Mutex, Padded, lock, wait_timeout};

pub(crate) struct Parker {
    word: Padded<AtomicU32>,
    pub(crate) barrier: Barrier,
    lock: Mutex<()>,
    woken: Condvar,
}

const PARKED: u32 = 1;
const CLOSED: u32 = 2;

/// What a submitter learns after it has published a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// The value will be taken.
    Accepted,
    /// The ingress was closed about then: the queue knows whether the value will be taken.
    Closed,
}

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

    /// To be called after each value that was published: wakes the receiver if it sleeps.
    #[inline]
    pub(crate) fn after_publish(&self) -> Published {
        self.barrier.light();
        match self.word.0.load(Ordering::Relaxed) {
            0 => Published::Accepted,
            word => self.handle_flags(word),
        }
    }

    #[cold]
    fn handle_flags(&self, word: u32) -> Published {
        if word & PARKED != 0 {
            self.wake();
        }
        match word & CLOSED {
            0 => Published::Accepted,
            _ => Published::Closed,
        }
    }

    /// Ends the receiver's parker, or keeps it from beginning one.
    pub(crate) fn wake(&self) {
        if self.word.0.fetch_and(!PARKED, Ordering::AcqRel) & PARKED != 0 {
            // The receiver either waits already or has not looked at the word under the lock.
            drop(lock(&self.lock));
            self.woken.notify_one();
        }
    }

    /// Sleeps until somebody wakes the receiver or the time is over, unless `is_there` finds
    /// something after the parker was announced.
    pub(crate) fn park(&self, timeout: Duration, is_there: impl FnOnce() -> bool) {
        self.word.0.fetch_or(PARKED, Ordering::AcqRel);
        self.barrier.heavy();
        if is_there() {
            self.word.0.fetch_and(!PARKED, Ordering::AcqRel);
            return;
        }
        let mut guard = lock(&self.lock);
        while self.word.0.load(Ordering::Acquire) & PARKED != 0 {
            let (again, is_over) = wait_timeout(&self.woken, guard, timeout);
            guard = again;
            if is_over {
                self.word.0.fetch_and(!PARKED, Ordering::AcqRel);
            }
        }
    }

    /// From here on whoever publishes a value learns that the ingress is closed, or the receiver
    /// sees the value.
    pub(crate) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Ordering::AcqRel);
        self.barrier.heavy();
    }
}
