//! The queue of one thread: single producer, single consumer, in chunks.
//!
//! The producer fills slots and then publishes their number. The consumer takes published values.
//! Each side keeps its own counters private, and reads the other side's counter only if its copy of
//! it is too old. The consumer returns empty chunks to the producer, so a short queue allocates
//! nothing.
#![expect(unsafe_code, reason = "two threads share slots without a lock")]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::sync::{Arc, AtomicPtr, AtomicU64, Padded, UnsafeCell, pause};

/// The producing side. Any thread may own it, but only one at a time.
pub(crate) struct Producer<T> {
    spsc: Arc<Spsc<T>>,
    chunk: *mut Chunk<T>,
    /// The slot of the next value in the chunk.
    at: usize,
    /// The first slot that cannot be written without more work: the end of the chunk, or the end of
    /// the known room. A push compares one number only.
    stop: usize,
    /// The number of values written so far.
    written: u64,
    limit: u64,
}

/// The consuming side.
pub(crate) struct Consumer<T> {
    spsc: Arc<Spsc<T>>,
    chunk: *mut Chunk<T>,
    /// The slot of the next value in the chunk.
    at: usize,
    taken: u64,
    /// The number of published values at the last refresh.
    published: u64,
}

struct Spsc<T> {
    published: Padded<AtomicU64>,
    taken: Padded<AtomicU64>,
    /// The number of the first value that is not accepted.
    closed_at: AtomicU64,
    /// An empty chunk that the consumer has returned.
    spare: AtomicPtr<Chunk<T>>,
    /// The chunks of both sides at the time they were dropped.
    producer_chunk: AtomicPtr<Chunk<T>>,
    consumer_chunk: AtomicPtr<Chunk<T>>,
}

/// The slots come first and are aligned to a cache line. A value of 64 bytes then occupies exactly
/// one line, and only this line moves from the producer's core to the consumer's.
#[repr(C, align(64))]
struct Chunk<T> {
    slots: [UnsafeCell<MaybeUninit<T>>; CHUNK_LEN],
    next: AtomicPtr<Chunk<T>>,
}

/// 16 KiB for values of 64 bytes and a pointer. Small under a model checker, which explores every
/// order of events.
#[cfg(not(loom))]
const CHUNK_LEN: usize = 255;
#[cfg(loom)]
const CHUNK_LEN: usize = 2;

/// The value of `closed_at` while the queue is open.
const OPEN: u64 = u64::MAX;

// SAFETY: both sides share counters and chunks. The producer writes a slot before it publishes its
// number, and the consumer reads it afterwards, never both at once. So a value moves from one
// thread to another, which `T: Send` allows.
unsafe impl<T: Send> Send for Producer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Consumer<T> {}

/// Creates an empty queue that holds at most `limit` values.
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
    /// Returns whether there is room, as far as known without reading the consumer's counter.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.at != self.stop
    }

    /// Publishes a value. Panics if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        assert!(self.has_room(), "a push into a full queue");
        // SAFETY: the consumer does not access this slot before its number is published, and the
        // chunk lives until the consumer has left it.
        let chunk = unsafe { &*self.chunk };
        // SAFETY: as above.
        chunk.slots[self.at].with_mut(|slot| unsafe { (*slot).write(value) });
        self.at += 1;
        self.written += 1;
        self.spsc.published.0.store(self.written, Ordering::Release);
    }

    /// Returns whether there is room after all. Reads the consumer's counter, and starts the next
    /// chunk at the end of this one.
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
        // SAFETY: the consumer enters the next chunk only when a value in it is published, which
        // happens later. Until then it stays in this chunk, so this chunk lives.
        unsafe { (*self.chunk).next.store(next, Ordering::Release) };
        self.chunk = next;
        self.at = 0;
    }

    /// Decides about the last pushed value after the channel was closed: accepted, or returned to
    /// the caller. Waits until the consumer has set the last number, which takes a moment.
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
        // SAFETY: the consumer takes no value from `closed_at` on, so the value belongs to the
        // producer.
        let chunk = unsafe { &*self.chunk };
        // SAFETY: as above; the last push has written the value.
        Err(chunk.slots[self.at].with_mut(|slot| unsafe { (*slot).assume_init_read() }))
    }
}

impl<T> Consumer<T> {
    /// Takes up to `max` values and returns their number.
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
        // SAFETY: the number is published, so the slot is written. The producer does not access it
        // again before the chunk is returned.
        let chunk = unsafe { &*self.chunk };
        let slot = &chunk.slots[self.at];
        self.at += 1;
        self.taken += 1;
        // SAFETY: as above; each number is taken once.
        slot.with_mut(|slot| unsafe { (*slot).assume_init_read() })
    }

    fn leave_chunk(&mut self) {
        // SAFETY: the producer linked the next chunk before it published a number in it.
        let next = unsafe { (*self.chunk).next.load(Ordering::Acquire) };
        let old = self.spsc.spare.swap(self.chunk, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: the producer did not take this chunk back, and cannot do so now. Both sides
            // have left it.
            drop(unsafe { Box::from_raw(old) });
        }
        self.chunk = next;
        self.at = 0;
    }

    /// Reads the producer's counter. Returns whether there is a value.
    pub(crate) fn refresh(&mut self) -> bool {
        let published = self.spsc.published.0.load(Ordering::Acquire);
        self.published = published.min(self.spsc.closed_at.load(Ordering::Relaxed));
        self.published != self.taken
    }

    /// Accepts the values published so far, and no more.
    pub(crate) fn close(&mut self) {
        let published = self.spsc.published.0.load(Ordering::Acquire);
        self.spsc.closed_at.store(published, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    /// Drops the remaining values and closes the queue.
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
    /// Frees the chunks from the consumer's to the producer's. Both sides are dropped, so the
    /// chunks contain no values.
    fn drop(&mut self) {
        let last = self.producer_chunk.load(Ordering::Acquire);
        let mut chunk = self.consumer_chunk.load(Ordering::Acquire);
        loop {
            // SAFETY: no other reference to these chunks exists; `allocate` created all of them.
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
