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

use crate::lanes::{self, LANES, Lane};

#[derive(Debug)]
pub(super) struct LaneScheduler {
    state: Mutex<SchedulerState>,
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    thread: OnceLock<Thread>,
    /// A processor was given to it.
    has_processor: AtomicBool,
}

#[derive(Debug)]
struct SchedulerState {
    /// Processors that nobody uses.
    free_processors: usize,
    /// Who could go on if there was a processor, first come first served.
    ready_slots: VecDeque<usize>,
    /// The streams that members wait for, by slot.
    awaited_streams: Vec<Option<u64>>,
    /// Full buffers, in the order in which they came.
    pending: Vec<PendingBuffer>,
    /// Buffers that were hashed and not taken back yet, by their streams.
    hashed: HashMap<u64, PendingBuffer>,
    next_stream: u64,
}

/// A buffer of a stream.
#[derive(Debug)]
pub(super) struct PendingBuffer {
    pub(super) stream: u64,
    pub(super) slot: usize,
    pub(super) lane: Lane,
    pub(super) bytes: Vec<u8>,
}

impl LaneScheduler {
    /// A crew of at most so many members, with one processor.
    pub(super) fn new(members: usize) -> LaneScheduler {
        let state = SchedulerState {
            free_processors: 1,
            ready_slots: VecDeque::new(),
            awaited_streams: vec![None; members],
            pending: Vec::new(),
            hashed: HashMap::new(),
            next_stream: 0,
        };
        LaneScheduler {
            state: Mutex::new(state),
            slots: (0..members).map(|_| Slot::default()).collect(),
        }
    }

    /// How many may be members.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Waits for a processor. The calling thread stays on this slot.
    pub(super) fn acquire_processor(&self, slot: usize) {
        let _: &Thread = self.slots[slot].thread.get_or_init(thread::current);
        let mut state = self.lock();
        state.ready_slots.push_back(slot);
        self.grant_processors(state);
        self.wait_for_processor(slot);
    }

    /// Gives up a processor for good: that of a member, or one from elsewhere.
    pub(super) fn release_processor(&self) {
        let mut state = self.lock();
        while state.ready_slots.is_empty() && !state.pending.is_empty() {
            state = self.hash_pending(state);
        }
        state.free_processors += 1;
        self.grant_processors(state);
    }

    /// Gives up the processor while `wait` waits.
    pub(super) fn yield_core_while<T>(&self, slot: usize, wait: impl FnOnce() -> T) -> T {
        self.release_processor();
        let found = wait();
        self.acquire_processor(slot);
        found
    }

    pub(super) fn next_stream_id(&self) -> u64 {
        let mut state = self.lock();
        state.next_stream += 1;
        state.next_stream
    }

    /// Hands in a buffer.
    pub(super) fn submit(&self, buffer: PendingBuffer) {
        self.lock().pending.push(buffer);
    }

    /// Returns the buffer of a stream when it is hashed; others work meanwhile.
    pub(super) fn wait_for_buffer(&self, slot: usize, stream: u64) -> PendingBuffer {
        let mut state = self.lock();
        loop {
            if let Some(buffer) = state.hashed.remove(&stream) {
                return buffer;
            }
            let waiting = state.pending.len();
            if waiting >= LANES || (waiting > 0 && state.ready_slots.is_empty()) {
                state = self.hash_pending(state);
                continue;
            }
            state.awaited_streams[slot] = Some(stream);
            state.free_processors += 1;
            self.grant_processors(state);
            self.wait_for_processor(slot);
            state = self.lock();
        }
    }

    /// Hashes the buffers that came first, one for each lane.
    fn hash_pending<'a>(
        &'a self,
        mut state: MutexGuard<'a, SchedulerState>,
    ) -> MutexGuard<'a, SchedulerState> {
        let len = state.pending.len().min(LANES);
        let mut buffers: Vec<PendingBuffer> = state.pending.drain(..len).collect();
        drop(state);
        let mut parts: Vec<(&mut Lane, &[u8])> = buffers
            .iter_mut()
            .map(|buffer| (&mut buffer.lane, &*buffer.bytes))
            .collect();
        lanes::update(&mut parts);
        let mut state = self.lock();
        for mut buffer in buffers {
            buffer.bytes.clear();
            if state.awaited_streams[buffer.slot] == Some(buffer.stream) {
                state.awaited_streams[buffer.slot] = None;
                state.ready_slots.push_back(buffer.slot);
            }
            state.hashed.insert(buffer.stream, buffer);
        }
        if state.free_processors > 0 && !state.ready_slots.is_empty() {
            self.grant_processors(state);
            state = self.lock();
        }
        state
    }

    /// Gives free processors to those who are ready.
    fn grant_processors(&self, mut state: MutexGuard<'_, SchedulerState>) {
        let len = state.free_processors.min(state.ready_slots.len());
        state.free_processors -= len;
        let next: Vec<usize> = state.ready_slots.drain(..len).collect();
        // A thread that wakes up wants the lock at once.
        drop(state);
        for slot in next {
            let slot = &self.slots[slot];
            slot.has_processor.store(true, Ordering::Release);
            if let Some(thread) = slot.thread.get() {
                thread.unpark();
            }
        }
    }

    fn wait_for_processor(&self, slot: usize) {
        while !self.slots[slot]
            .has_processor
            .swap(false, Ordering::Acquire)
        {
            thread::park();
        }
    }

    fn lock(&self) -> MutexGuard<'_, SchedulerState> {
        // Every change under the lock is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl LaneScheduler {
    /// Whether nothing is left of any stream.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.pending.is_empty() && state.hashed.is_empty() && state.ready_slots.is_empty()
    }
}
