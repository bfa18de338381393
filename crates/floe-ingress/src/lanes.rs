//! Which lane is whose: one for each thread that has submitted, kept in the thread's own storage
//! and given back when the thread ends.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{mem, ptr};

use crate::lane::{Reader, Writer, lane};

/// The lanes of one ingress.
pub(crate) struct Lanes<T> {
    /// Never used twice in a process, so what a thread keeps of an old ingress is never mistaken.
    number: u64,
    /// How many values a lane holds.
    limit: u64,
    lanes_max: usize,
    /// Changes with every new lane.
    version: AtomicU32,
    shared: Mutex<Shared<T>>,
}

struct Shared<T> {
    /// The lanes of threads that have ended.
    idle: Vec<Writer<T>>,
    /// The lanes that the receiver has not seen.
    new: Vec<Reader<T>>,
    made: usize,
    is_closed: bool,
}

impl<T: Send + 'static> Lanes<T> {
    pub(crate) fn new(limit: u64, lanes_max: usize) -> Arc<Lanes<T>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Lanes {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            limit,
            lanes_max,
            version: AtomicU32::new(0),
            shared: Mutex::new(Shared {
                idle: Vec::new(),
                new: Vec::new(),
                made: 0,
                is_closed: false,
            }),
        })
    }

    /// The lane of the calling thread, if this thread has used it last.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "it is the thread's, not the ingress's")]
    pub(crate) fn at_hand(&self) -> Option<&mut Writer<T>> {
        let (number, writer) = FIRST.get();
        // SAFETY: the number is that of this very ingress, so it is a writer of `T`. It lives until
        // the thread ends, which takes it out of `FIRST`. Nobody else has a reference to it: only
        // this thread knows it, and a submit, the only caller, holds none where it calls back.
        (number == self.number).then(|| unsafe { &mut *writer.cast() })
    }

    /// The lane of the calling thread, which from now on is at hand. None if there are as many as
    /// there may be, the ingress is closed, or the thread is about to end.
    pub(crate) fn find(self: &Arc<Self>) -> Option<&mut Writer<T>> {
        if self.lanes_max == 0 {
            return None;
        }
        let found = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if let Some(entry) = kept.iter().find(|entry| entry.number == self.number) {
                return Some(entry.writer);
            }
            kept.retain(|entry| !entry.lease.is_over());
            let writer = Box::into_raw(Box::new(self.claim()?));
            let home = Arc::downgrade(self);
            kept.push(Entry {
                number: self.number,
                writer: writer.cast(),
                lease: Box::new(Held { writer, home }),
            });
            Some(writer.cast())
        });
        FIRST.set((self.number, found.ok().flatten()?));
        self.at_hand()
    }

    fn claim(&self) -> Option<Writer<T>> {
        let mut shared = self.shared();
        if shared.is_closed {
            return None;
        }
        if let Some(writer) = shared.idle.pop() {
            return Some(writer);
        }
        if shared.made == self.lanes_max {
            return None;
        }
        let (writer, reader) = lane(self.limit);
        shared.made += 1;
        shared.new.push(reader);
        self.version.fetch_add(1, Ordering::Release);
        Some(writer)
    }
}

impl<T> Lanes<T> {
    /// The lanes that were made since `seen`, which is brought up to date.
    pub(crate) fn new_ones(&self, seen: &mut u32) -> Vec<Reader<T>> {
        let version = self.version.load(Ordering::Acquire);
        match mem::replace(seen, version) == version {
            true => Vec::new(),
            false => mem::take(&mut self.shared().new),
        }
    }

    /// Makes no more lanes; the lanes that the receiver has not seen.
    pub(crate) fn close(&self) -> Vec<Reader<T>> {
        let mut shared = self.shared();
        shared.is_closed = true;
        mem::take(&mut shared.new)
    }

    fn shared(&self) -> MutexGuard<'_, Shared<T>> {
        // Every change under the lock is complete in itself.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// All lanes of this thread. They are given back when it ends.
    static KEPT: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };

    /// The lane that was used last, and the number of its ingress. It needs no dropping, so to look
    /// here costs no more than any other variable.
    static FIRST: Cell<(u64, *mut ())> = const { Cell::new((NOBODY, ptr::null_mut())) };
}

/// No ingress has this number.
const NOBODY: u64 = u64::MAX;

struct Entry {
    number: u64,
    /// A `Writer<T>`, with the `T` of the ingress that has this number.
    writer: *mut (),
    /// What gives it back.
    lease: Box<dyn Lease>,
}

trait Lease {
    /// Whether the ingress is gone.
    fn is_over(&self) -> bool;
}

struct Held<T> {
    writer: *mut Writer<T>,
    home: Weak<Lanes<T>>,
}

impl<T> Lease for Held<T> {
    fn is_over(&self) -> bool {
        self.home.strong_count() == 0
    }
}

impl<T> Drop for Held<T> {
    /// The thread ends, or the ingress is gone: the next thread may have the lane, behind what is
    /// still in it.
    fn drop(&mut self) {
        if FIRST.get().1 == self.writer.cast() {
            FIRST.set((NOBODY, ptr::null_mut()));
        }
        // SAFETY: it came from a box, and `FIRST` and `KEPT` have it no more.
        let writer = unsafe { Box::from_raw(self.writer) };
        let Some(home) = self.home.upgrade() else {
            return;
        };
        // The child of a fork may find the lock held by a thread that it does not have. Then the
        // lane is given up, rather than that the child never ends.
        for _ in 0..LOCK_TRIES {
            if let Ok(mut shared) = home.shared.try_lock() {
                shared.idle.push(*writer);
                return;
            }
            std::thread::yield_now();
        }
        mem::forget(writer);
    }
}

/// The lock is held for less than a microsecond at a time.
const LOCK_TRIES: u32 = 10_000;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_ends_under_a_lock_that_is_never_freed_gives_its_lane_up_and_ends() {
        let lanes = Lanes::<u64>::new(10, 10);
        let (has_lane, is_locked) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let submitter = scope.spawn(|| {
                lanes.find().unwrap().push(7);
                has_lane.wait();
                is_locked.wait();
            });
            has_lane.wait();
            // As the child of a fork may find it.
            let guard = lanes.shared();
            is_locked.wait();
            // Until the thread's own values are dropped as well, which happens at its very end.
            submitter.join().unwrap();
            drop(guard);
        });
        // What it has submitted is still there; its lane is nobody's.
        let mut readers = lanes.new_ones(&mut 0);
        let mut taken = Vec::new();
        readers[0].take(10, |value| taken.push(value));
        assert_eq!((readers.len(), taken), (1, vec![7]));
        assert!(lanes.shared().idle.is_empty());
    }
}
