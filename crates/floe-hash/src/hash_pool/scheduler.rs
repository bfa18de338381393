//! The scheduler of batched workers: they share few processors, so that full buffers of many
//! workers collect.
//!
//! 1. A worker runs until it needs a buffer back that it submitted for hashing.
//! 2. Then it passes its processor to the next worker that can run.
//! 3. If no worker can run, or there is a buffer for every lane, the worker hashes the pending
//!    buffers of all workers together, and continues.
//!
//! The scheduler exists because the operating system would give each thread an equal share. The
//! batched workers together would then get many times the share of the sequential worker with the
//! largest message, for which the copy waits at its end.

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use parking_lot::{Mutex, MutexGuard};

use crate::lanes::{self, LANES, Lane};

#[derive(Debug)]
pub(super) struct LaneScheduler {
    state: Mutex<SchedulerState>,
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    thread: OnceLock<Thread>,
    /// Whether the slot got a processor.
    has_processor: AtomicBool,
}

#[derive(Debug)]
struct SchedulerState {
    /// The number of unused processors.
    free_processors: usize,
    /// The slots that can run as soon as a processor is free, in the order of their requests.
    ready_slots: VecDeque<usize>,
    /// For each slot, the stream whose buffer it waits for.
    awaited_streams: Vec<Option<u64>>,
    /// Full buffers that are not hashed yet, in the order of submission.
    pending: Vec<PendingBuffer>,
    /// Hashed buffers that their streams have not reclaimed yet.
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
    /// Makes a scheduler with this number of slots and one processor.
    pub(super) fn new(slots: usize) -> LaneScheduler {
        let state = SchedulerState {
            free_processors: 1,
            ready_slots: VecDeque::new(),
            awaited_streams: vec![None; slots],
            pending: Vec::new(),
            hashed: HashMap::new(),
            next_stream: 0,
        };
        LaneScheduler {
            state: Mutex::new(state),
            slots: (0..slots).map(|_| Slot::default()).collect(),
        }
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Waits for a processor. The slot belongs to the calling thread from now on.
    pub(super) fn acquire_processor(&self, slot: usize) {
        let _: &Thread = self.slots[slot].thread.get_or_init(thread::current);
        let mut state = self.state.lock();
        state.ready_slots.push_back(slot);
        self.grant_processors(state);
        self.wait_for_processor(slot);
    }

    /// Adds a processor: that of a worker which does not run any more, batched or sequential. If no
    /// slot can run, hashes the pending buffers first, because their workers wait for them.
    pub(super) fn release_processor(&self) {
        let mut state = self.state.lock();
        while state.ready_slots.is_empty() && !state.pending.is_empty() {
            state = self.hash_pending(state);
        }
        state.free_processors += 1;
        self.grant_processors(state);
    }

    /// Releases the processor while `wait` runs.
    pub(super) fn yield_core_while<T>(&self, slot: usize, wait: impl FnOnce() -> T) -> T {
        self.release_processor();
        let found = wait();
        self.acquire_processor(slot);
        found
    }

    pub(super) fn next_stream_id(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_stream += 1;
        state.next_stream
    }

    /// Submits a full buffer for hashing.
    pub(super) fn submit(&self, buffer: PendingBuffer) {
        self.state.lock().pending.push(buffer);
    }

    /// Waits until the buffer of a stream is hashed, and returns it. Other slots run meanwhile.
    pub(super) fn wait_for_buffer(&self, slot: usize, stream: u64) -> PendingBuffer {
        let mut state = self.state.lock();
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
            state = self.state.lock();
        }
    }

    /// Hashes the oldest pending buffers, one for each lane, without the lock.
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
        let mut state = self.state.lock();
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
            state = self.state.lock();
        }
        state
    }

    /// Gives the free processors to slots that can run.
    fn grant_processors(&self, mut state: MutexGuard<'_, SchedulerState>) {
        let len = state.free_processors.min(state.ready_slots.len());
        state.free_processors -= len;
        let next: Vec<usize> = state.ready_slots.drain(..len).collect();
        // A thread that wakes up takes the lock at once.
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
}

#[cfg(test)]
impl LaneScheduler {
    /// Whether the scheduler holds no buffer of any stream.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.pending.is_empty() && state.hashed.is_empty() && state.ready_slots.is_empty()
    }
}
