//! The two ends that callers see.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::barrier::Barrier;
use crate::error::SubmitError;
use crate::parker::{Parker, Published};
use crate::shards::Shards;
use crate::spsc::Consumer;
use crate::thread_queues::ThreadQueues;

/// The submitters' end; clones are the same ingress.
pub struct Sender<T> {
    inner: Arc<Inner<T>>,
}

/// The receiver's end.
pub struct Receiver<T> {
    inner: Arc<Inner<T>>,
    queues: Vec<Consumer<T>>,
    /// The version of the queues that were seen.
    seen: u32,
    /// The queue that is looked at first in the next round.
    first: usize,
    /// What came from a queue with a lock and was not handed out yet.
    spare: VecDeque<T>,
    /// The last look, if it is to be left alone for a while.
    burst_at: Option<Instant>,
    is_closed: bool,
}

struct Inner<T> {
    queues: Arc<ThreadQueues<T>>,
    shards: Shards<T>,
    parker: Parker,
}

/// What an ingress holds at max.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values of one thread.
    pub per_thread: usize,
    /// Threads with a queue of their own; others share queues with a lock.
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

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("queues", &self.queues.len())
            .finish_non_exhaustive()
    }
}

/// A sender and its receiver.
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
        is_closed: false,
    };
    (Sender { inner }, receiver)
}

impl<T: Send + 'static> Sender<T> {
    /// Hands a value in, without waiting. `Ok`: it will be taken, once, even if the ingress is
    /// closed meanwhile. `make` is called only if there is room, and once; what it makes is written
    /// to where it stays until it is taken. It must not submit itself, here or elsewhere.
    ///
    /// Errors: see [`SubmitError`]; the value was not and will not be taken.
    ///
    /// Panics, and loses the value, if `make` has submitted, and this thread's queue is not at hand
    /// or has no room any more.
    #[inline]
    pub fn submit(&self, make: impl FnOnce() -> T) -> Result<(), SubmitError<T>> {
        let inner = &*self.inner;
        if !inner.queues.cached().is_some_and(|queue| queue.has_room()) {
            match inner.slow_destination() {
                Destination::OwnQueue => {}
                Destination::Shards => return inner.submit_to_shards(make),
                Destination::Busy => return Err(SubmitError::Busy),
                Destination::Closed => return Err(SubmitError::Closed(None)),
            }
        }
        let value = make();
        let Some(producer) = inner.queues.cached().filter(|queue| queue.has_room()) else {
            // To drop the value here would take its address, and then it is made in another place
            // and copied, each time.
            mem::forget(value);
            panic!("a value was submitted while another one was made");
        };
        producer.push(value);
        match inner.parker.after_publish() {
            Published::Accepted => Ok(()),
            Published::Closed => producer
                .confirm_last()
                .map_err(|value| SubmitError::Closed(Some(value))),
        }
    }

    /// Makes the receiver look around, as a value would.
    pub fn wake(&self) {
        self.inner.parker.wake();
    }
}

/// Where the next value of a thread goes.
enum Destination {
    /// Into its queue, which is at hand and has room.
    OwnQueue,
    Shards,
    Busy,
    Closed,
}

impl<T: Send + 'static> Inner<T> {
    /// For a thread whose queue is full, or that has not yet a queue or did not use it last.
    #[cold]
    #[inline(never)]
    fn slow_destination(&self) -> Destination {
        if self.parker.is_closed() {
            return Destination::Closed;
        }
        let Some(producer) = self.queues.find() else {
            return Destination::Shards;
        };
        match producer.has_room() || producer.make_room() {
            true => Destination::OwnQueue,
            false => Destination::Busy,
        }
    }
}

impl<T> Inner<T> {
    fn submit_to_shards(&self, make: impl FnOnce() -> T) -> Result<(), SubmitError<T>> {
        self.shards.push(make)?;
        // The queue's own lock has decided already whether the value came in time.
        self.parker.after_publish();
        Ok(())
    }
}

impl<T: Send + 'static> Receiver<T> {
    /// One round: takes up to 256 values from each queue, and `max` in all. How many there were.
    /// A round that was cut short is continued by the next one. The round after one that brought
    /// many begins four microseconds later at the earliest.
    pub fn take(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        self.pause_after_burst();
        self.queues
            .extend(self.inner.queues.take_new(&mut self.seen));
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

    /// Lets threads that are submitting get on for a while: who looks at once finds the few values
    /// that came meanwhile, and for them takes lines of memory away from threads that write there;
    /// or even the processor that one of them waits for.
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

    /// Whether a value waits, by a look at all queues.
    pub fn has_value(&mut self) -> bool {
        self.queues
            .extend(self.inner.queues.take_new(&mut self.seen));
        let queues = &mut self.queues;
        queues.iter_mut().any(Consumer::refresh)
            || !self.spare.is_empty()
            || !self.inner.shards.is_empty()
    }

    /// Looks for so long, every half microsecond, whether there is a value, or whether
    /// `has_other_work` knows of something else: to parker and be woken may take longer.
    pub fn spin_for_value(&mut self, time: Duration, has_other_work: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        loop {
            for _ in 0..CHECKS_PER_YIELD {
                // Not without a pause: each look takes the line of a counter away from a thread
                // that is just submitting, and a value that comes alone is hardly ever the last.
                (0..PAUSES_PER_CHECK).for_each(|_| std::hint::spin_loop());
                if has_other_work() || self.has_value() {
                    return true;
                }
            }
            if begin.elapsed() >= time {
                return false;
            }
            // Whoever is about to submit may be waiting for this very core.
            std::thread::yield_now();
        }
    }

    /// Sleeps until there may be something, somebody calls [`Sender::wake`], or the time is over;
    /// not at all if `has_other_work` says so, which is asked when a wake cannot be missed any
    /// more. Values end or prevent the parker only if `for_values`.
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
}

impl<T> Receiver<T> {
    /// Accepts nothing more. What was accepted is still there to be taken.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        self.inner.parker.close();
        self.inner.shards.close();
        self.queues.extend(self.inner.queues.close());
        self.queues.iter_mut().for_each(Consumer::close);
    }
}

impl<T> Drop for Receiver<T> {
    /// Nobody is told of values that are left; they are dropped.
    fn drop(&mut self) {
        self.close();
    }
}

/// About half a microsecond on a processor where a pause takes 140 cycles, and less on others.
const PAUSES_PER_CHECK: u32 = 10;

/// Between two offers of the core to others: two microseconds.
const CHECKS_PER_YIELD: u32 = 4;

/// Threads that wait for their answers before they ask again bring fewer than this at a time, and
/// are not kept waiting.
const BURST_MIN: usize = 8;

/// Time for a thread to write about as many values as a round takes from it. Measured with one
/// thread: 55 to 95 million submits a second, and 22 without a rest; twice the time gains nothing.
const BURST_PAUSE: Duration = Duration::from_micros(4);

/// With the 64 bytes of a request, 4 MiB.
const MAX_PER_THREAD: usize = 64 * 1024;

/// Beyond this many threads the receiver's rounds would take long.
const QUEUES: usize = 1024;

/// Measured with 1 to 100 threads: more shards were not faster.
const SHARDS: usize = 16;

/// How many values a round takes from one queue, so that a busy thread cannot keep others waiting.
pub const MAX_PER_ROUND: usize = 256;
