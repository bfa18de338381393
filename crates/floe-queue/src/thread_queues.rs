//! Which queue is whose: one for each thread that has submitted, owned in the thread's own storage
//! and given back when the thread ends.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{mem, ptr};

use crate::spsc::{Consumer, Producer, spsc};

/// The queues of one ingress.
pub(crate) struct ThreadQueues<T> {
    /// Never used twice in a process, so what a thread keeps of an old ingress is never mistaken.
    number: u64,
    /// How many values a queue holds.
    limit: u64,
    queues_max: usize,
    /// Changes with every new queue.
    version: AtomicU32,
    shared: Mutex<Shared<T>>,
}

struct Shared<T> {
    /// The queues of threads that have ended.
    idle: Vec<Producer<T>>,
    /// The queues that the receiver has not seen.
    new: Vec<Consumer<T>>,
    made: usize,
    is_closed: bool,
}

impl<T: Send + 'static> ThreadQueues<T> {
    pub(crate) fn new(limit: u64, queues_max: usize) -> Arc<ThreadQueues<T>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(ThreadQueues {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            limit,
            queues_max,
            version: AtomicU32::new(0),
            shared: Mutex::new(Shared {
                idle: Vec::new(),
                new: Vec::new(),
                made: 0,
                is_closed: false,
            }),
        })
    }

    /// The queue of the calling thread, if this thread has used it last.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "it is the thread's, not the ingress's")]
    pub(crate) fn cached(&self) -> Option<&mut Producer<T>> {
        let (number, producer) = CACHED.get();
        // SAFETY: the number is that of this very ingress, so it is a producer of `T`. It lives
        // until the thread ends, which takes it out of `CACHED`. Nobody else has a reference to it:
        // only this thread knows it, and a submit, the only caller, holds none where it calls back.
        (number == self.number).then(|| unsafe { &mut *producer.cast() })
    }

    /// The queue of the calling thread, which from now on is at hand. None if there are as many as
    /// there may be, the ingress is closed, or the thread is about to end.
    pub(crate) fn find(self: &Arc<Self>) -> Option<&mut Producer<T>> {
        if self.queues_max == 0 {
            return None;
        }
        let found = OWNED.try_with(|owned| {
            let mut owned = owned.borrow_mut();
            if let Some(entry) = owned.iter().find(|entry| entry.number == self.number) {
                return Some(entry.producer);
            }
            owned.retain(|entry| !entry.lease.is_over());
            let producer = Box::into_raw(Box::new(self.claim()?));
            let owner = Arc::downgrade(self);
            owned.push(OwnedQueue {
                number: self.number,
                producer: producer.cast(),
                lease: Box::new(LeasedQueue { producer, owner }),
            });
            Some(producer.cast())
        });
        CACHED.set((self.number, found.ok().flatten()?));
        self.cached()
    }

    fn claim(&self) -> Option<Producer<T>> {
        let mut shared = self.shared();
        if shared.is_closed {
            return None;
        }
        if let Some(producer) = shared.idle.pop() {
            return Some(producer);
        }
        if shared.made == self.queues_max {
            return None;
        }
        let (producer, consumer) = spsc(self.limit);
        shared.made += 1;
        shared.new.push(consumer);
        self.version.fetch_add(1, Ordering::Release);
        Some(producer)
    }
}

impl<T> ThreadQueues<T> {
    /// The queues that were made since `seen`, which is brought up to date.
    pub(crate) fn take_new(&self, seen: &mut u32) -> Vec<Consumer<T>> {
        let version = self.version.load(Ordering::Acquire);
        match mem::replace(seen, version) == version {
            true => Vec::new(),
            false => mem::take(&mut self.shared().new),
        }
    }

    /// Makes no more queues; the queues that the receiver has not seen.
    pub(crate) fn close(&self) -> Vec<Consumer<T>> {
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
    /// All queues of this thread. They are given back when it ends.
    static OWNED: RefCell<Vec<OwnedQueue>> = const { RefCell::new(Vec::new()) };

    /// The queue that was used last, and the number of its ingress. It needs no dropping, so to
    /// look here costs no more than any other variable.
    static CACHED: Cell<(u64, *mut ())> = const { Cell::new((NO_CHANNEL, ptr::null_mut())) };
}

/// No ingress has this number.
const NO_CHANNEL: u64 = u64::MAX;

struct OwnedQueue {
    number: u64,
    /// A `Producer<T>`, with the `T` of the ingress that has this number.
    producer: *mut (),
    /// What gives it back.
    lease: Box<dyn Lease>,
}

trait Lease {
    /// Whether the ingress is gone.
    fn is_over(&self) -> bool;
}

struct LeasedQueue<T> {
    producer: *mut Producer<T>,
    owner: Weak<ThreadQueues<T>>,
}

impl<T> Lease for LeasedQueue<T> {
    fn is_over(&self) -> bool {
        self.owner.strong_count() == 0
    }
}

impl<T> Drop for LeasedQueue<T> {
    /// The thread ends, or the ingress is gone: the next thread may have the queue, behind what is
    /// still in it.
    fn drop(&mut self) {
        if CACHED.get().1 == self.producer.cast() {
            CACHED.set((NO_CHANNEL, ptr::null_mut()));
        }
        // SAFETY: it came from a box, and `CACHED` and `OWNED` have it no more.
        let producer = unsafe { Box::from_raw(self.producer) };
        let Some(owner) = self.owner.upgrade() else {
            return;
        };
        // The child of a fork may find the lock held by a thread that it does not have. Then the
        // queue is given up, rather than that the child never ends.
        for _ in 0..LOCK_TRIES {
            if let Ok(mut shared) = owner.shared.try_lock() {
                shared.idle.push(*producer);
                return;
            }
            std::thread::yield_now();
        }
        mem::forget(producer);
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
        let queues = ThreadQueues::<u64>::new(10, 10);
        let (has_queue, is_locked) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let submitter = scope.spawn(|| {
                queues.find().unwrap().push(7);
                has_queue.wait();
                is_locked.wait();
            });
            has_queue.wait();
            // As the child of a fork may find it.
            let guard = queues.shared();
            is_locked.wait();
            // Until the thread's own values are dropped as well, which happens at its very end.
            submitter.join().unwrap();
            drop(guard);
        });
        // What it has submitted is still there; its queue is nobody's.
        let mut consumers = queues.take_new(&mut 0);
        let mut taken = Vec::new();
        consumers[0].take(10, |value| taken.push(value));
        assert_eq!((consumers.len(), taken), (1, vec![7]));
        assert!(queues.shared().idle.is_empty());
    }
}
