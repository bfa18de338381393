//! SHA-256 for many threads, on CPUs that hash many messages at once much faster than one.
//!
//! 1. a thread for each core but one takes the largest message that is left, one after the other,
//!    and hashes it alone;
//! 2. a *crew* of threads, who take turns on the core that is left, takes the smallest, and hashes
//!    them together, each in a lane of the CPU's vectors;
//! 3. where they meet, the crew gets the other cores as well;
//! 4. a message that is larger than a core's share of all is what the end will wait for: a second
//!    thread hashes it, while the first decodes and writes.
//!
//! A lane is slower than a message alone. So a large message in a lane would be at it long after
//! all the others, while messages of about the same length keep all lanes filled.
//!
//! On other CPUs there is a thread for each core, and it hashes alone. So does each thread where
//! somebody has said how many messages may be under way.

mod batched;
mod offloaded;
mod scheduler;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use crate::Sha256;
use crate::lanes;

use batched::BatchedStream;
use offloaded::OffloadedStream;
use scheduler::LaneScheduler;

/// How so many messages are shared by threads that hash.
#[derive(Debug)]
pub struct HashPool {
    messages: usize,
    cores: usize,
    scheduler: Option<Arc<LaneScheduler>>,
    /// The hash of a longer message gets a thread of its own.
    offload_above: u64,
}

/// The place of a thread that has not begun.
#[derive(Debug)]
pub struct WorkerTicket(Worker);

/// A thread at work. When it is dropped, its core is for the others.
#[derive(Debug)]
pub struct Worker {
    scheduler: Option<Arc<LaneScheduler>>,
    /// Its slot, if it is one of the crew.
    slot: Option<usize>,
    offload_above: u64,
}

impl HashPool {
    /// What suits this machine and messages of these lengths, in bytes; or as many messages at once
    /// as are asked for.
    pub fn for_messages(lens: impl Iterator<Item = u64>, jobs: Option<NonZeroUsize>) -> HashPool {
        match jobs {
            Some(_) => HashPool::sequential(lens.count(), jobs),
            None => HashPool::for_cores(lens, cores()),
        }
    }

    fn for_cores(lens: impl Iterator<Item = u64>, cores: NonZeroUsize) -> HashPool {
        let (mut messages, mut total) = (0, 0_u64);
        for len in lens {
            messages += 1;
            total = total.saturating_add(len);
        }
        let mut pool = HashPool::sequential(messages, Some(cores));
        let cores = cores.get();
        if lanes::are_preferred() && messages >= cores - 1 + BATCH_MESSAGES_MIN {
            pool.scheduler = Some(Arc::new(LaneScheduler::new(SLOTS_MAX)));
        }
        if lanes::are_preferred() && cores > 1 {
            pool.offload_above = OFFLOAD_LEN_MIN.max(total / (cores as u64 + 1));
        }
        pool
    }

    /// As many threads as are asked for, else one for each core, and each by itself.
    pub fn sequential(messages: usize, jobs: Option<NonZeroUsize>) -> HashPool {
        HashPool {
            messages,
            cores: jobs.unwrap_or_else(cores).get(),
            scheduler: None,
            offload_above: u64::MAX,
        }
    }

    /// The same with half the threads, where each needs much memory for its own work and hashing is
    /// little beside that.
    pub fn with_half_the_slots(mut self) -> HashPool {
        let scheduler = self
            .scheduler
            .map(|scheduler| LaneScheduler::new(scheduler.slots() / 2));
        self.scheduler = scheduler.map(Arc::new);
        self
    }

    /// How many of the largest messages are under way at once.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The places of all threads.
    pub fn tickets(&self) -> impl Iterator<Item = WorkerTicket> {
        let (alone, members) = match &self.scheduler {
            None => (self.cores.min(self.messages), 0),
            Some(scheduler) => {
                let alone = self.messages.min(self.cores - 1);
                (alone, scheduler.slots().min(self.messages - alone))
            }
        };
        let slots = (0..alone).map(|_| None).chain((0..members).map(Some));
        slots.map(|slot| {
            WorkerTicket(Worker {
                scheduler: self.scheduler.clone(),
                slot,
                offload_above: self.offload_above,
            })
        })
    }
}

fn cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl WorkerTicket {
    /// Begins. Called by the thread itself, which waits for its turn.
    pub fn start(self) -> Worker {
        if let (Some(scheduler), Some(slot)) = (&self.0.scheduler, self.0.slot) {
            scheduler.acquire_processor(slot);
        }
        self.0
    }
}

impl Worker {
    /// Whether it takes the smallest of the messages that are left, not the largest.
    pub fn takes_smallest(&self) -> bool {
        self.slot.is_some()
    }

    /// A stream for a message of `len` bytes.
    pub fn stream(&self, len: u64) -> Stream {
        self.stream_with_buffer(len, BUFFER_LEN)
    }

    /// A stream for what a message of `len` bytes is compressed to or was decoded from, beside
    /// that of the message itself.
    pub fn secondary_stream(&self, len: u64) -> Stream {
        self.stream_with_buffer(len, SECONDARY_BUFFER_LEN)
    }

    fn stream_with_buffer(&self, len: u64, buffer_len: usize) -> Stream {
        Stream(match (&self.scheduler, self.slot) {
            (Some(scheduler), Some(slot)) => {
                StreamKind::Batched(BatchedStream::new(scheduler, slot, buffer_len))
            }
            _ if len > self.offload_above => {
                OffloadedStream::start().map_or_else(StreamKind::direct, StreamKind::Offloaded)
            }
            _ => StreamKind::direct(),
        })
    }

    /// Does something that may wait for a network, while others of the crew go on.
    pub fn yield_core_while<T>(&self, wait: impl FnOnce() -> T) -> T {
        match (&self.scheduler, self.slot) {
            (Some(scheduler), Some(slot)) => scheduler.yield_core_while(slot, wait),
            _ => wait(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.release_processor();
        }
    }
}

/// A SHA-256 stream: any number of updates, then the digest.
#[derive(Debug)]
pub struct Stream(StreamKind);

#[derive(Debug)]
enum StreamKind {
    Direct(Sha256),
    Offloaded(OffloadedStream),
    Batched(BatchedStream),
}

impl StreamKind {
    fn direct() -> StreamKind {
        StreamKind::Direct(Sha256::new())
    }
}

impl Default for Stream {
    fn default() -> Stream {
        Stream(StreamKind::direct())
    }
}

impl Stream {
    /// Feeds the next bytes of the message.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            StreamKind::Direct(hasher) => hasher.update(bytes),
            StreamKind::Offloaded(stream) => stream.update(bytes),
            StreamKind::Batched(stream) => stream.update(bytes),
        }
    }

    /// The digest of everything fed so far.
    pub fn finish(self) -> [u8; 32] {
        match self.0 {
            StreamKind::Direct(hasher) => hasher.finish(),
            StreamKind::Offloaded(stream) => stream.finish(),
            StreamKind::Batched(stream) => stream.finish(),
        }
    }
}

/// Fills buffers of `len` bytes one after the other and passes each full one to `send`, which
/// leaves an empty one in its place.
fn fill_buffers(
    filling: &mut Vec<u8>,
    len: usize,
    mut bytes: &[u8],
    mut send: impl FnMut(&mut Vec<u8>),
) {
    while !bytes.is_empty() {
        let room = len - filling.len();
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        filling.extend_from_slice(now);
        bytes = later;
        if filling.len() == len {
            send(filling);
        }
    }
}

/// Each buffer wakes another thread, which takes up to 0.1 ms where that has to go to another core:
/// larger buffers were faster, up to the third-level cache.
const BUFFER_LEN: usize = 512 * 1024;

/// What is compressed to a quarter fills a buffer at about the same time.
const SECONDARY_BUFFER_LEN: usize = 128 * 1024;

/// With fewer most lanes would be empty most of the time, and a message in a lane is slower.
const BATCH_MESSAGES_MIN: usize = 6;

/// Each holds a decoder with its window, and two buffers of each stream. Of the 16 lanes the rest
/// is for the second streams.
const SLOTS_MAX: usize = 12;

/// A second thread for less than this is not worth its start.
const OFFLOAD_LEN_MIN: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
