//! The sender and the receiver.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::barrier::Barrier;
use crate::error::SubmitError;
use crate::parker::Parker;
use crate::shards::Shards;
use crate::spsc::Consumer;
use crate::thread_queues::ThreadQueues;

/// The sending side. Clones send to the same receiver.
pub struct Sender<T> {
    inner: Arc<Inner<T>>,
}

/// The receiving side.
pub struct Receiver<T> {
    inner: Arc<Inner<T>>,
    queues: Vec<Consumer<T>>,
    /// The number of thread queues that the receiver knows.
    seen: u32,
    /// The queue with which the next round starts.
    first: usize,
    /// Values taken from a shard and not yet passed to the caller.
    spare: VecDeque<T>,
    /// The time of the last burst, until the pause after it.
    burst_at: Option<Instant>,
}

struct Inner<T> {
    queues: Arc<ThreadQueues<T>>,
    shards: Shards<T>,
    parker: Parker,
}

/// The bounds of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The number of waiting values per thread.
    pub per_thread: usize,
    /// The number of threads with a queue of their own. Other threads share the shards.
    pub queues: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            per_thread: MAX_PER_THREAD,
            queues: QUEUES,
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender {
            inner: self.inner.clone(),
        }
    }
}

/// Creates a sender and its receiver.
pub fn channel<T: Send + 'static>(limits: Limits) -> (Sender<T>, Receiver<T>) {
    let inner = Arc::new(Inner {
        queues: ThreadQueues::new(limits.per_thread as u64, limits.queues),
        shards: Shards::new(SHARDS, limits.per_thread),
        parker: Parker::new(Barrier::new()),
    });
    let receiver = Receiver {
        inner: inner.clone(),
        queues: Vec::new(),
        seen: 0,
        first: 0,
        spare: VecDeque::new(),
        burst_at: None,
    };
    (Sender { inner }, receiver)
}

impl<T: Send + 'static> Sender<T> {
    /// Submits a value without waiting. After `Ok`, the receiver will take the value exactly once,
    /// even if it closes meanwhile. `make` is called at most once, and only if there is room. Its
    /// result is written directly into the queue. `make` must not submit to any channel.
    ///
    /// Errors: see [`SubmitError`]. The receiver will not take the value.
    ///
    /// Panics and leaks the value if `make` has submitted, and the thread's queue is no longer
    /// cached or no longer has room.
    #[inline]
    pub fn submit(&self, make: impl FnOnce() -> T) -> Result<(), SubmitError<T>> {
        let inner = &*self.inner;
        let has_room = inner.queues.cached().is_some_and(|queue| queue.has_room());
        if !has_room && !inner.find_own_queue()? {
            return inner.submit_to_shards(make);
        }
        let value = make();
        let Some(producer) = inner.queues.cached().filter(|queue| queue.has_room()) else {
            // Dropping the value here would take its address. The compiler would then build every
            // value elsewhere and copy it into the queue.
            mem::forget(value);
            panic!("`make` has submitted another value");
        };
        producer.push(value);
        if inner.parker.after_publish() {
            return Ok(());
        }
        let confirmed = producer.confirm_last();
        confirmed.map_err(|value| SubmitError::Closed(Some(value)))
    }

    /// Wakes the receiver, as a value would.
    pub fn wake(&self) {
        self.inner.parker.wake();
    }
}

impl<T: Send + 'static> Inner<T> {
    /// The slow path of a submit: the queue of the thread is full, does not exist, or is not
    /// cached. Returns whether the thread now has a cached queue with room. Otherwise it uses the
    /// shards.
    #[cold]
    #[inline(never)]
    fn find_own_queue(&self) -> Result<bool, SubmitError<T>> {
        if self.parker.is_closed() {
            return Err(SubmitError::Closed(None));
        }
        let Some(producer) = self.queues.find() else {
            return Ok(false);
        };
        if producer.has_room() || producer.make_room() {
            Ok(true)
        } else {
            Err(SubmitError::Busy)
        }
    }

    fn submit_to_shards(&self, make: impl FnOnce() -> T) -> Result<(), SubmitError<T>> {
        self.shards.push(make)?;
        // The shard's lock has already decided whether the value came before the close.
        self.parker.after_publish();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes one round of values: at most 256 from each queue, and at most `max` in total. Returns
    /// their number. If `max` ends a round early, the next round continues where it ended. After a
    /// burst, the next round starts four microseconds later at the earliest.
    pub fn take(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        self.pause_after_burst();
        self.add_new_queues();
        let (mut count, mut is_any_full) = (0, false);
        for step in 0..self.queues.len() {
            if count == max {
                self.first = (self.first + step) % self.queues.len();
                return count;
            }
            let at = (self.first + step) % self.queues.len();
            let taken = self.queues[at].take(MAX_PER_ROUND.min(max - count), &mut each);
            is_any_full |= taken == MAX_PER_ROUND;
            count += taken;
        }
        let (shards, spare) = (&self.inner.shards, &mut self.spare);
        count += shards.take(max - count, spare, &mut each);
        if count >= BURST_MIN && !is_any_full {
            self.burst_at = Some(Instant::now());
        }
        count
    }

    fn add_new_queues(&mut self) {
        let new = self.inner.queues.take_new(&mut self.seen);
        self.queues.extend(new);
    }

    /// Waits a moment after a burst, so that submitting threads can make progress. Without the
    /// pause, each round finds few values. It takes cache lines away from the threads that write to
    /// them, and may take the core that one of them waits for.
    fn pause_after_burst(&mut self) {
        let is_early = |since: &Instant| since.elapsed() < BURST_PAUSE;
        let Some(since) = self.burst_at.take().filter(is_early) else {
            return;
        };
        std::thread::yield_now();
        while is_early(&since) {
            (0..PAUSES_PER_CHECK).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Returns whether a value waits. Checks all queues.
    pub fn has_value(&mut self) -> bool {
        self.add_new_queues();
        self.queues.iter_mut().any(Consumer::refresh)
            || !self.spare.is_empty()
            || !self.inner.shards.is_empty()
    }

    /// Spins up to `time` until there is a value or `has_other_work` returns true, and checks every
    /// half microsecond. Sleeping and waking up may take longer.
    pub fn spin_for_value(&mut self, time: Duration, has_other_work: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        loop {
            for _ in 0..CHECKS_PER_YIELD {
                // Pause first: each check takes the cache line of a counter away from a thread that
                // is submitting, and values rarely come alone.
                (0..PAUSES_PER_CHECK).for_each(|_| std::hint::spin_loop());
                if has_other_work() || self.has_value() {
                    return true;
                }
            }
            if begin.elapsed() >= time {
                return false;
            }
            // A thread that is about to submit may be waiting for this core.
            std::thread::yield_now();
        }
    }

    /// Sleeps until there may be a value, until [`Sender::wake`] is called, or until the timeout.
    /// Returns at once if `has_other_work` returns true; it is called when no wake-up can be lost
    /// any more. Values count only if `for_values` is set.
    pub fn wait(
        &mut self,
        timeout: Duration,
        for_values: bool,
        has_other_work: impl FnOnce() -> bool,
    ) {
        let inner = self.inner.clone();
        let is_there = || has_other_work() || for_values && self.has_value();
        inner.parker.park(timeout, is_there);
    }

    /// Stops accepting values. Accepted values can still be taken.
    pub fn close(&mut self) {
        if self.inner.parker.is_closed() {
            return;
        }
        self.inner.parker.close();
        self.inner.shards.close();
        self.queues.extend(self.inner.queues.close());
        self.queues.iter_mut().for_each(Consumer::close);
    }
}

impl<T> Drop for Receiver<T> {
    /// Drops the values that were accepted and not taken.
    fn drop(&mut self) {
        self.close();
    }
}

/// About half a microsecond on a processor where a pause takes 140 cycles; less on others.
const PAUSES_PER_CHECK: u32 = 10;

/// The thread yields its core every two microseconds.
const CHECKS_PER_YIELD: u32 = 4;

/// Threads that wait for each reply before the next request submit fewer values per round. They are
/// not delayed.
const BURST_MIN: usize = 8;

/// The time in which a thread writes about as many values as a round takes from it. Measured with
/// one thread: 55 to 95 million submits per second, and 22 million without the pause. Twice the
/// time gains nothing.
const BURST_PAUSE: Duration = Duration::from_micros(4);

/// 4 MiB for requests of 64 bytes.
const MAX_PER_THREAD: usize = 64 * 1024;

/// With more queues, the rounds of the receiver would take too long.
const QUEUES: usize = 1024;

/// Measured with 1 to 100 threads: more shards were not faster.
const SHARDS: usize = 16;

/// The number of values that a round takes from one queue, so that a busy thread cannot delay the
/// other threads.
pub const MAX_PER_ROUND: usize = 256;
