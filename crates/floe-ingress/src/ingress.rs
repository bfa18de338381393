//! The two ends that callers see.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::barrier::Barrier;
use crate::lane::Reader;
use crate::lanes::Lanes;
use crate::refused::Refused;
use crate::shards::Shards;
use crate::sleep::{After, Sleep};

/// The submitters' end; clones are the same ingress.
pub struct Ingress<T> {
    inner: Arc<Inner<T>>,
}

/// The receiver's end.
pub struct Receiver<T> {
    inner: Arc<Inner<T>>,
    lanes: Vec<Reader<T>>,
    /// The version of the lanes that were seen.
    seen: u32,
    /// The lane that is looked at first in the next round.
    first: usize,
    /// What came from a queue with a lock and was not handed out yet.
    spare: VecDeque<T>,
    /// The last look, if it is to be left alone for a while.
    rests_since: Option<Instant>,
    is_closed: bool,
}

struct Inner<T> {
    mode: Mode,
    lanes: Arc<Lanes<T>>,
    shards: Shards<T>,
    sleep: Sleep,
}

/// How values get in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By a lane for each thread.
    #[default]
    Lanes,
    /// By a few queues with a lock each, as in the seed of this design; to compare with.
    Shards,
}

/// What an ingress holds at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values of one thread.
    pub per_thread: usize,
    /// Threads with a lane of their own; others share queues with a lock.
    pub lanes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            per_thread: PER_THREAD,
            lanes: LANES,
        }
    }
}

impl<T> Clone for Ingress<T> {
    fn clone(&self) -> Ingress<T> {
        Ingress {
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for Ingress<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingress")
            .field("mode", &self.inner.mode)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Ingress<T> {
    /// An ingress and the end of the one who takes from it.
    pub fn new(mode: Mode, limits: Limits) -> (Ingress<T>, Receiver<T>) {
        let lanes = match mode {
            Mode::Lanes => limits.lanes,
            Mode::Shards => 0,
        };
        let inner = Arc::new(Inner {
            mode,
            lanes: Lanes::new(limits.per_thread as u64, lanes),
            shards: Shards::new(SHARDS, limits.per_thread),
            sleep: Sleep::new(Barrier::new()),
        });
        let receiver = Receiver {
            inner: inner.clone(),
            lanes: Vec::new(),
            seen: 0,
            first: 0,
            spare: VecDeque::new(),
            rests_since: None,
            is_closed: false,
        };
        (Ingress { inner }, receiver)
    }

    /// Hands a value in, without waiting. `Ok`: it will be taken, once, even if the ingress is
    /// closed meanwhile. `make` is called only if there is room, and once; what it makes is written
    /// to where it stays until it is taken. It must not submit itself, here or elsewhere.
    ///
    /// Errors: see [`Refused`]; the value was not and will not be taken.
    ///
    /// Panics, and loses the value, if `make` has submitted, and this thread's lane is not at hand
    /// or has no room any more.
    #[inline]
    pub fn submit(&self, make: impl FnOnce() -> T) -> Result<(), Refused<T>> {
        let inner = &*self.inner;
        if !inner.lanes.at_hand().is_some_and(|lane| lane.has_room()) {
            match inner.other_way() {
                Way::Lane => {}
                Way::Shards => return inner.submit_to_shards(make),
                Way::Busy => return Err(Refused::Busy),
                Way::Closed => return Err(Refused::Closed(None)),
            }
        }
        let value = make();
        let Some(writer) = inner.lanes.at_hand().filter(|lane| lane.has_room()) else {
            // To drop the value here would take its address, and then it is made in another place
            // and copied, each time.
            mem::forget(value);
            panic!("a value was submitted while another one was made");
        };
        writer.push(value);
        match inner.sleep.published() {
            After::Accepted => Ok(()),
            After::Closed => writer
                .settle()
                .map_err(|value| Refused::Closed(Some(value))),
        }
    }

    /// Makes the receiver look around, as a value would.
    pub fn wake(&self) {
        self.inner.sleep.wake();
    }
}

/// Where the next value of a thread goes.
enum Way {
    /// Into its lane, which is at hand and has room.
    Lane,
    Shards,
    Busy,
    Closed,
}

impl<T: Send + 'static> Inner<T> {
    /// For a thread whose lane is full, or that has not yet a lane or did not use it last.
    #[cold]
    #[inline(never)]
    fn other_way(&self) -> Way {
        if self.sleep.is_closed() {
            return Way::Closed;
        }
        let Some(writer) = self.lanes.find() else {
            return Way::Shards;
        };
        match writer.has_room() || writer.make_room() {
            true => Way::Lane,
            false => Way::Busy,
        }
    }
}

impl<T> Inner<T> {
    fn submit_to_shards(&self, make: impl FnOnce() -> T) -> Result<(), Refused<T>> {
        self.shards.push(make)?;
        // The queue's own lock has decided already whether the value came in time.
        self.sleep.published();
        Ok(())
    }
}

impl<T: Send + 'static> Receiver<T> {
    /// One round: takes up to 256 values from each lane, and `most` in all. How many there were.
    /// A round that was cut short is continued by the next one. The round after one that brought
    /// many begins four microseconds later at the earliest.
    pub fn take(&mut self, most: usize, mut each: impl FnMut(T)) -> usize {
        self.rest();
        self.lanes.extend(self.inner.lanes.new_ones(&mut self.seen));
        let (mut count, mut is_any_full) = (0, false);
        for step in 0..self.lanes.len() {
            if count == most {
                self.first = (self.first + step) % self.lanes.len();
                return count;
            }
            let at = (self.first + step) % self.lanes.len();
            let taken = self.lanes[at].take(PER_ROUND.min(most - count), &mut each);
            is_any_full |= taken == PER_ROUND;
            count += taken;
        }
        let (shards, spare) = (&self.inner.shards, &mut self.spare);
        count += shards.take(most - count, spare, &mut each);
        if count >= MANY && !is_any_full {
            self.rests_since = Some(Instant::now());
        }
        count
    }

    /// Lets threads that are submitting get on for a while: who looks at once finds the few values
    /// that came meanwhile, and for them takes lines of memory away from threads that write there;
    /// or even the processor that one of them waits for.
    fn rest(&mut self) {
        let is_early = |since: &Instant| since.elapsed() < REST;
        let Some(since) = self.rests_since.take().filter(is_early) else {
            return;
        };
        std::thread::yield_now();
        while is_early(&since) {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Whether a value waits, by a look at all lanes.
    pub fn has_some(&mut self) -> bool {
        self.lanes.extend(self.inner.lanes.new_ones(&mut self.seen));
        let lanes = &mut self.lanes;
        lanes.iter_mut().any(Reader::look)
            || !self.spare.is_empty()
            || !self.inner.shards.is_empty()
    }

    /// Looks for so long, every half microsecond, whether there is a value, or whether `has_other`
    /// knows of something else: to sleep and be woken may take longer.
    pub fn expect(&mut self, time: Duration, has_other: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        loop {
            for _ in 0..LOOKS {
                // Not without a pause: each look takes the line of a counter away from a thread
                // that is just submitting, and a value that comes alone is hardly ever the last.
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                if has_other() || self.has_some() {
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

    /// Sleeps until there may be something, somebody calls [`Ingress::wake`], or the time is over;
    /// not at all if `has_other` says so, which is asked when a wake cannot be missed any more.
    /// Values end or prevent the sleep only if `for_values`.
    pub fn wait(&mut self, timeout: Duration, for_values: bool, has_other: impl FnOnce() -> bool) {
        let inner = self.inner.clone();
        let is_there = || has_other() || for_values && self.has_some();
        inner.sleep.sleep(timeout, is_there);
    }
}

impl<T> Receiver<T> {
    /// Accepts nothing more. What was accepted is still there to be taken.
    pub fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        self.inner.sleep.close();
        self.inner.shards.close();
        self.lanes.extend(self.inner.lanes.close());
        self.lanes.iter_mut().for_each(Reader::close);
    }
}

impl<T> Drop for Receiver<T> {
    /// Nobody is told of values that are left; they are dropped.
    fn drop(&mut self) {
        self.close();
    }
}

/// About half a microsecond on a processor where a pause takes 140 cycles, and less on others.
const PAUSES: u32 = 10;

/// Between two offers of the core to others: two microseconds.
const LOOKS: u32 = 4;

/// Threads that wait for their answers before they ask again bring fewer than this at a time, and
/// are not kept waiting.
const MANY: usize = 8;

/// Time for a thread to write about as many values as a round takes from it. Measured with one
/// thread: 55 to 95 million submits a second, and 22 without a rest; twice the time gains nothing.
const REST: Duration = Duration::from_micros(4);

/// With the 64 bytes of a request, 4 MiB.
const PER_THREAD: usize = 64 * 1024;

/// Beyond this many threads the receiver's rounds would take long.
const LANES: usize = 1024;

/// As in the seed of this design; more gained nothing on any machine tried.
const SHARDS: usize = 16;

/// How many values a round takes from one lane, so that a busy thread cannot keep others waiting.
pub const PER_ROUND: usize = 256;
