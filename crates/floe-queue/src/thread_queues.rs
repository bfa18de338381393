//! The owners of queues. Each thread that has submitted owns one queue, in thread-local storage,
//! and returns it when the thread ends.
#![expect(unsafe_code, reason = "threads own queues through raw pointers")]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::{mem, ptr};

use crate::spsc::{Consumer, Producer, spsc};
use crate::sync::lock;

/// The thread queues of one channel.
pub(crate) struct ThreadQueues<T> {
    /// The number of the channel. A process never uses a number twice, so a thread never confuses
    /// two channels.
    number: u64,
    /// The capacity of a queue.
    limit: u64,
    queues_max: usize,
    /// The number of queues so far. Incremented only under the lock.
    made: AtomicU32,
    shared: Mutex<Shared<T>>,
}

struct Shared<T> {
    /// The queues of threads that have ended.
    idle: Vec<Producer<T>>,
    /// The queues that the receiver does not know yet.
    new: Vec<Consumer<T>>,
    is_closed: bool,
}

impl<T: Send + 'static> ThreadQueues<T> {
    pub(crate) fn new(limit: u64, queues_max: usize) -> Arc<ThreadQueues<T>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(ThreadQueues {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            limit,
            queues_max,
            made: AtomicU32::new(0),
            shared: Mutex::new(Shared {
                idle: Vec::new(),
                new: Vec::new(),
                is_closed: false,
            }),
        })
    }

    /// Returns the queue of the calling thread if the thread has used this channel last.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the producer belongs to the thread, not to `self`"
    )]
    pub(crate) fn cached(&self) -> Option<&mut Producer<T>> {
        let (number, producer) = CACHED.get();
        // SAFETY: the number belongs to this channel, so the pointer is a producer of `T`. It lives
        // until the thread ends, which clears `CACHED`. No other reference exists: only this thread
        // knows the producer, and its only user, `submit`, holds no reference while it calls back.
        (number == self.number).then(|| unsafe { &mut *producer.cast() })
    }

    /// Returns the queue of the calling thread and caches it. Returns `None` if there are too many
    /// queues, the channel is closed, or the thread is about to end.
    pub(crate) fn find(self: &Arc<Self>) -> Option<&mut Producer<T>> {
        let found = OWNED.try_with(|owned| {
            let mut owned = owned.borrow_mut();
            if let Some(entry) = owned.iter().find(|entry| entry.number == self.number) {
                return Some(entry.producer);
            }
            owned.retain(|entry| entry.channel.strong_count() > 0);
            let producer = Box::into_raw(Box::new(self.claim()?));
            let owner = Arc::downgrade(self);
            owned.push(OwnedQueue {
                number: self.number,
                producer: producer.cast(),
                channel: owner.clone(),
                _lease: Box::new(LeasedQueue { producer, owner }),
            });
            Some(producer.cast())
        });
        CACHED.set((self.number, found.ok().flatten()?));
        self.cached()
    }

    fn claim(&self) -> Option<Producer<T>> {
        let mut shared = lock(&self.shared);
        if shared.is_closed {
            return None;
        }
        if let Some(producer) = shared.idle.pop() {
            return Some(producer);
        }
        if self.made.load(Ordering::Relaxed) as usize == self.queues_max {
            return None;
        }
        let (producer, consumer) = spsc(self.limit);
        shared.new.push(consumer);
        self.made.fetch_add(1, Ordering::Release);
        Some(producer)
    }
}

impl<T> ThreadQueues<T> {
    /// Returns the queues created since their number was `seen`, and updates `seen`.
    pub(crate) fn take_new(&self, seen: &mut u32) -> Vec<Consumer<T>> {
        let made = self.made.load(Ordering::Acquire);
        if mem::replace(seen, made) == made {
            Vec::new()
        } else {
            mem::take(&mut lock(&self.shared).new)
        }
    }

    /// Creates no more queues. Returns the queues that the receiver does not know yet.
    pub(crate) fn close(&self) -> Vec<Consumer<T>> {
        let mut shared = lock(&self.shared);
        shared.is_closed = true;
        mem::take(&mut shared.new)
    }
}

thread_local! {
    /// All queues of this thread. They are returned when it ends.
    static OWNED: RefCell<Vec<OwnedQueue>> = const { RefCell::new(Vec::new()) };

    /// The last used queue, with the number of its channel. It needs no destructor, so reading it
    /// costs no more than reading any other variable.
    static CACHED: Cell<(u64, *mut ())> = const { Cell::new((NO_CHANNEL, ptr::null_mut())) };
}

/// No channel has this number.
const NO_CHANNEL: u64 = u64::MAX;

struct OwnedQueue {
    number: u64,
    /// A `Producer<T>` with the `T` of the channel that has this number.
    producer: *mut (),
    channel: Weak<dyn Any>,
    /// Returns the queue when it is dropped.
    _lease: Box<dyn Any>,
}

struct LeasedQueue<T> {
    producer: *mut Producer<T>,
    owner: Weak<ThreadQueues<T>>,
}

impl<T> Drop for LeasedQueue<T> {
    /// Returns the queue when its thread ends or its channel is gone. The next owner appends behind
    /// the values that are still in it.
    fn drop(&mut self) {
        if CACHED.get().1 == self.producer.cast() {
            CACHED.set((NO_CHANNEL, ptr::null_mut()));
        }
        // SAFETY: the pointer came from a box, and neither `CACHED` nor `OWNED` contains it any
        // more.
        let producer = unsafe { Box::from_raw(self.producer) };
        let Some(owner) = self.owner.upgrade() else {
            return;
        };
        // In the child of a fork, the lock may be held by a thread that does not exist there.
        // Leaking the queue is better than never ending the child.
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
    fn thread_ending_under_held_lock_leaks_its_queue() {
        let queues = ThreadQueues::<u64>::new(10, 10);
        let (has_queue, is_locked) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let submitter = scope.spawn(|| {
                queues.find().unwrap().push(7);
                has_queue.wait();
                is_locked.wait();
            });
            has_queue.wait();
            // The state that the child of a fork may find.
            let guard = lock(&queues.shared);
            is_locked.wait();
            // Waits until the thread-local values are dropped, which is the last action of a
            // thread.
            submitter.join().unwrap();
            drop(guard);
        });
        // The submitted value is still there, and the queue is leaked.
        let mut consumers = queues.take_new(&mut 0);
        let mut taken = Vec::new();
        consumers[0].take(10, |value| taken.push(value));
        assert_eq!((consumers.len(), taken), (1, vec![7]));
        assert!(lock(&queues.shared).idle.is_empty());
    }
}
