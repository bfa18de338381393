//! The queue of one thread: a queue with one producer and one consumer, in chunks.
//!
//! The producer fills slots and then publishes their number; the consumer takes what is published.
//! Each side keeps what it alone uses to itself, and reads the other's counter only when its own
//! copy of it does not say enough. A chunk that the consumer has emptied goes back to the producer,
//! so a queue that is kept short allocates nothing.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::sync::{Arc, AtomicPtr, AtomicU64, Padded, UnsafeCell, pause};

/// The producer's end. Whoever holds it may be any thread, but only one at a time.
pub(crate) struct Producer<T> {
    spsc: Arc<Spsc<T>>,
    chunk: *mut Chunk<T>,
    /// The slot of the next value in the chunk.
    at: usize,
    /// The slot before which something has to be done: the end of the chunk, or of what the queue
    /// was last known to have room for. So that a push looks at one number only.
    stop: usize,
    /// How many values have been written.
    written: u64,
    limit: u64,
}

/// The consumer's end.
pub(crate) struct Consumer<T> {
    spsc: Arc<Spsc<T>>,
    chunk: *mut Chunk<T>,
    /// The slot of the next value in the chunk.
    at: usize,
    taken: u64,
    /// How many were published when the queue was last looked at.
    published: u64,
}

struct Spsc<T> {
    published: Padded<AtomicU64>,
    taken: Padded<AtomicU64>,
    /// The number of the first value that is not accepted any more.
    closed_at: AtomicU64,
    /// A chunk that the consumer does not need any more.
    spare: AtomicPtr<Chunk<T>>,
    /// Where the ends were when they were dropped.
    producer_chunk: AtomicPtr<Chunk<T>>,
    consumer_chunk: AtomicPtr<Chunk<T>>,
}

/// The slots come first and begin with a cache line: a value of 64 bytes then is in one line, and
/// one is all that has to go from the producer's processor to the consumer's.
#[repr(C, align(64))]
struct Chunk<T> {
    slots: [UnsafeCell<MaybeUninit<T>>; CHUNK_LEN],
    next: AtomicPtr<Chunk<T>>,
}

/// With 64 bytes for a value and a pointer, 16 KiB. Fewer under a model checker, which looks at
/// every order of events.
#[cfg(not(loom))]
const CHUNK_LEN: usize = 255;
#[cfg(loom)]
const CHUNK_LEN: usize = 2;

/// No queue is closed at this number.
const OPEN: u64 = u64::MAX;

// SAFETY: the ends share counters and chunks. A slot is written by the producer before its number
// is published and read by the consumer afterwards, and never by both; so a value goes from one
// thread to another, which `T: Send` allows.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Consumer<T> {}

/// An empty queue that holds at max `limit` values.
pub(crate) fn spsc<T>(limit: u64) -> (Producer<T>, Consumer<T>) {
    let chunk = Chunk::allocate();
    let spsc = Arc::new(Spsc {
        published: Padded(AtomicU64::new(0)),
        taken: Padded(AtomicU64::new(0)),
        closed_at: AtomicU64::new(OPEN),
        spare: AtomicPtr::new(ptr::null_mut()),
        producer_chunk: AtomicPtr::new(ptr::null_mut()),
        consumer_chunk: AtomicPtr::new(ptr::null_mut()),
    });
    let producer = Producer {
        spsc: spsc.clone(),
        chunk,
        at: 0,
        stop: CHUNK_LEN.min(limit as usize),
        written: 0,
        limit,
    };
    let consumer = Consumer {
        spsc,
        chunk,
        at: 0,
        taken: 0,
        published: 0,
    };
    (producer, consumer)
}

impl<T> Chunk<T> {
    fn allocate() -> *mut Chunk<T> {
        Box::into_raw(Box::new(Chunk {
            next: AtomicPtr::new(ptr::null_mut()),
            slots: std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
        }))
    }
}

impl<T> Producer<T> {
    /// Whether there is room, as far as is known without asking the consumer.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.at != self.stop
    }

    /// Publishes a value. To be called only where there is room.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        assert!(self.has_room(), "a push into a full queue");
        // SAFETY: the consumer does not touch this slot before its number is published, and the
        // chunk lives until the consumer has left it.
        let chunk = unsafe { &*self.chunk };
        // SAFETY: as above.
        chunk.slots[self.at].with_mut(|slot| unsafe { (*slot).write(value) });
        self.at += 1;
        self.written += 1;
        self.spsc.published.0.store(self.written, Ordering::Release);
    }

    /// Whether there is room after all: begins the next chunk where this one ends, and asks the
    /// consumer how much it has taken.
    #[cold]
    pub(crate) fn make_room(&mut self) -> bool {
        let waiting = self.written - self.spsc.taken.0.load(Ordering::Acquire);
        let room = (self.limit - waiting) as usize;
        if room == 0 {
            return false;
        }
        if self.at == CHUNK_LEN {
            self.begin_chunk();
        }
        self.stop = CHUNK_LEN.min(self.at + room);
        true
    }

    fn begin_chunk(&mut self) {
        let mut next = self.spsc.spare.swap(ptr::null_mut(), Ordering::Acquire);
        if next.is_null() {
            next = Chunk::allocate();
        }
        // SAFETY: the consumer comes to the next chunk only when a value in it is published, which
        // is after this; until then it stays in this chunk, which therefore lives.
        unsafe { (*self.chunk).next.store(next, Ordering::Release) };
        self.chunk = next;
        self.at = 0;
    }

    /// To be called when the ingress is closed, after a push: whether that value was accepted, or
    /// the value. Waits for the consumer, who is about to say so.
    #[cold]
    pub(crate) fn confirm_last(&mut self) -> Result<(), T> {
        let last = self.written - 1;
        let closed_at = loop {
            match self.spsc.closed_at.load(Ordering::Acquire) {
                OPEN => pause(),
                number => break number,
            }
        };
        if last < closed_at {
            return Ok(());
        }
        self.written = last;
        self.at -= 1;
        self.spsc.published.0.store(last, Ordering::Release);
        // SAFETY: the consumer takes nothing from `closed_at` on, so the value is the producer's.
        let chunk = unsafe { &*self.chunk };
        // SAFETY: as above; the value was written by the push before.
        Err(chunk.slots[self.at].with_mut(|slot| unsafe { (*slot).assume_init_read() }))
    }
}

impl<T> Consumer<T> {
    /// Takes up to `max` values; how many there were.
    pub(crate) fn take(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        if self.published - self.taken < max as u64 {
            self.refresh();
        }
        let count = (self.published - self.taken).min(max as u64);
        for _ in 0..count {
            each(self.next());
        }
        self.spsc.taken.0.store(self.taken, Ordering::Release);
        count as usize
    }

    fn next(&mut self) -> T {
        if self.at == CHUNK_LEN {
            self.leave_chunk();
        }
        // SAFETY: the number is published, so the slot was written, and the producer does not touch
        // it again before the chunk comes back to it.
        let chunk = unsafe { &*self.chunk };
        let slot = &chunk.slots[self.at];
        self.at += 1;
        self.taken += 1;
        // SAFETY: as above; each number is taken once.
        slot.with_mut(|slot| unsafe { (*slot).assume_init_read() })
    }

    fn leave_chunk(&mut self) {
        // SAFETY: the producer linked the next chunk before it published the number in it.
        let next = unsafe { (*self.chunk).next.load(Ordering::Acquire) };
        let old = self.spsc.spare.swap(self.chunk, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: the producer had not taken it back, and now cannot; both have left it.
            drop(unsafe { Box::from_raw(old) });
        }
        self.chunk = next;
        self.at = 0;
    }

    /// Whether there is something, by a look at the producer's counter.
    pub(crate) fn refresh(&mut self) -> bool {
        let published = self.spsc.published.0.load(Ordering::Acquire);
        self.published = published.min(self.spsc.closed_at.load(Ordering::Relaxed));
        self.published != self.taken
    }

    /// Accepts what is published now and nothing more.
    pub(crate) fn close(&mut self) {
        let published = self.spsc.published.0.load(Ordering::Acquire);
        self.spsc.closed_at.store(published, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    /// Drops the values that are left. The producer finds the queue closed.
    fn drop(&mut self) {
        if self.spsc.closed_at.load(Ordering::Relaxed) == OPEN {
            self.close();
        }
        while self.take(usize::MAX, drop) > 0 {}
        self.spsc
            .consumer_chunk
            .store(self.chunk, Ordering::Release);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.spsc
            .producer_chunk
            .store(self.chunk, Ordering::Release);
    }
}

impl<T> Drop for Spsc<T> {
    /// Both ends are gone: frees the chunks from the consumer's to the producer's, which hold no
    /// value any more.
    fn drop(&mut self) {
        let last = self.producer_chunk.load(Ordering::Acquire);
        let mut chunk = self.consumer_chunk.load(Ordering::Acquire);
        loop {
            // SAFETY: nobody else knows these chunks; all were made by `allocate`.
            let freed = unsafe { Box::from_raw(chunk) };
            if chunk == last {
                break;
            }
            chunk = freed.next.load(Ordering::Acquire);
        }
        let spare = self.spare.load(Ordering::Acquire);
        if !spare.is_null() {
            // SAFETY: as above; a spare chunk is not in the chain.
            drop(unsafe { Box::from_raw(spare) });
        }
    }
}

#[cfg(test)]
mod tests;
