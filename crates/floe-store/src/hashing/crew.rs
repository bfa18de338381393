//! Threads that take turns on few processors, so that their buffers come together.
//!
//! 1. a member works until it needs the hash of a buffer that it has handed in;
//! 2. then it passes its processor on to the next member that can go on;
//! 3. when none can, or there is a buffer for every lane, it hashes the buffers that wait, whosever
//!    they are, and goes on itself.
//!
//! The operating system would give each thread its share, and so the crew many times that of the
//! thread with the largest message, which all wait for in the end.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};

use floe_hash::lanes::{self, LANES, Lane};

#[derive(Debug)]
pub(super) struct Crew {
    state: Mutex<State>,
    seats: Vec<Seat>,
}

#[derive(Debug, Default)]
struct Seat {
    thread: OnceLock<Thread>,
    /// A processor was given to it.
    may_go_on: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Processors that nobody uses.
    free: usize,
    /// Who could go on if there was a processor, first come first served.
    ready: VecDeque<usize>,
    /// The streams that members wait for, by seat.
    awaited: Vec<Option<u64>>,
    /// Full buffers, in the order in which they came.
    waiting: Vec<Job>,
    /// Buffers that were hashed and not taken back yet, by their streams.
    done: HashMap<u64, Job>,
    next_stream: u64,
}

/// A buffer of a stream.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) stream: u64,
    pub(super) seat: usize,
    pub(super) lane: Lane,
    pub(super) bytes: Vec<u8>,
}

impl Crew {
    /// A crew of at most so many members, with one processor.
    pub(super) fn new(members: usize) -> Crew {
        let state = State {
            free: 1,
            ready: VecDeque::new(),
            awaited: vec![None; members],
            waiting: Vec::new(),
            done: HashMap::new(),
            next_stream: 0,
        };
        Crew {
            state: Mutex::new(state),
            seats: (0..members).map(|_| Seat::default()).collect(),
        }
    }

    /// How many may be members.
    pub(super) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Waits for a processor. The calling thread stays on this seat.
    pub(super) fn enter(&self, seat: usize) {
        let _: &Thread = self.seats[seat].thread.get_or_init(thread::current);
        let mut state = self.lock();
        state.ready.push_back(seat);
        self.give(state);
        self.wait_for_processor(seat);
    }

    /// Gives up a processor for good: that of a member, or one from elsewhere.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        while state.ready.is_empty() && !state.waiting.is_empty() {
            state = self.hash(state);
        }
        state.free += 1;
        self.give(state);
    }

    /// Gives up the processor while `wait` waits.
    pub(super) fn away<T>(&self, seat: usize, wait: impl FnOnce() -> T) -> T {
        self.leave();
        let found = wait();
        self.enter(seat);
        found
    }

    pub(super) fn number_stream(&self) -> u64 {
        let mut state = self.lock();
        state.next_stream += 1;
        state.next_stream
    }

    /// Hands in a buffer.
    pub(super) fn add(&self, job: Job) {
        self.lock().waiting.push(job);
    }

    /// Returns the buffer of a stream when it is hashed; others work meanwhile.
    pub(super) fn wait_for(&self, seat: usize, stream: u64) -> Job {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.done.remove(&stream) {
                return job;
            }
            let waiting = state.waiting.len();
            if waiting >= LANES || (waiting > 0 && state.ready.is_empty()) {
                state = self.hash(state);
                continue;
            }
            state.awaited[seat] = Some(stream);
            state.free += 1;
            self.give(state);
            self.wait_for_processor(seat);
            state = self.lock();
        }
    }

    /// Hashes the buffers that came first, one for each lane.
    fn hash<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let len = state.waiting.len().min(LANES);
        let mut jobs: Vec<Job> = state.waiting.drain(..len).collect();
        drop(state);
        let mut parts: Vec<(&mut Lane, &[u8])> = jobs
            .iter_mut()
            .map(|job| (&mut job.lane, &*job.bytes))
            .collect();
        lanes::update(&mut parts);
        let mut state = self.lock();
        for mut job in jobs {
            job.bytes.clear();
            if state.awaited[job.seat] == Some(job.stream) {
                state.awaited[job.seat] = None;
                state.ready.push_back(job.seat);
            }
            state.done.insert(job.stream, job);
        }
        if state.free > 0 && !state.ready.is_empty() {
            self.give(state);
            state = self.lock();
        }
        state
    }

    /// Gives free processors to those who are ready.
    fn give(&self, mut state: MutexGuard<'_, State>) {
        let len = state.free.min(state.ready.len());
        state.free -= len;
        let next: Vec<usize> = state.ready.drain(..len).collect();
        // A thread that wakes up wants the lock at once.
        drop(state);
        for seat in next {
            let seat = &self.seats[seat];
            seat.may_go_on.store(true, Ordering::Release);
            if let Some(thread) = seat.thread.get() {
                thread.unpark();
            }
        }
    }

    fn wait_for_processor(&self, seat: usize) {
        while !self.seats[seat].may_go_on.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Crew {
    /// Whether nothing is left of any stream.
    pub(super) fn is_tidy(&self) -> bool {
        let state = self.lock();
        state.waiting.is_empty() && state.done.is_empty() && state.ready.is_empty()
    }
}
