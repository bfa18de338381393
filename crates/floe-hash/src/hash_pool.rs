//! SHA-256 for the workers of a copy.
//!
//! Some CPUs hash 16 messages at once, one per SIMD lane, much faster than one after the other. But
//! one message in a lane takes longer than the same message alone. So the pool treats large and
//! small messages differently:
//!
//! 1. *Sequential* workers, one for each core but one, take the largest messages and hash them
//!    alone. A large message in a lane would still be in work long after all others.
//! 2. *Batched* workers share the remaining core and take the smallest messages. Each fills the
//!    buffer of one lane, and one of them then hashes all buffers together. Messages of similar
//!    length keep all lanes filled. A batched worker has a *slot* in the scheduler.
//! 3. When a sequential worker finds no more messages, its core goes to the batched workers.
//! 4. The copy would wait at its end for a message that is larger than the share of one core. A
//!    second thread hashes such a message (*offloaded*), while the worker decodes and writes it.
//!
//! On other CPUs, and if the caller chooses the number of messages at once, there are only
//! sequential workers. A second thread then hashes a large message as soon as a core is idle: at
//! the end of a copy, fewer messages than cores are left.

mod batched;
mod large;
mod offloaded;
mod scheduler;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use crate::Sha256;
use crate::idle_cores::{BusyCore, IdleCores};
use crate::lanes;

use batched::BatchedStream;
use large::LargeStream;
use offloaded::OffloadedStream;
use scheduler::LaneScheduler;

/// The division of messages among the workers that hash them.
#[derive(Debug)]
pub struct HashPool {
    messages: usize,
    cores: usize,
    scheduler: Option<Arc<LaneScheduler>>,
    /// A message that is longer, in bytes, is hashed by a second thread.
    offload_above: u64,
    /// The cores without a worker. The batched workers together have one.
    idle_cores: Arc<IdleCores>,
}

/// The right to start one worker, on the thread that will run it.
#[derive(Debug)]
pub struct WorkerTicket(Worker);

/// A running worker. Dropping it gives its core to the batched workers, or makes the core idle.
#[derive(Debug)]
pub struct Worker {
    scheduler: Option<Arc<LaneScheduler>>,
    /// The slot of a batched worker.
    slot: Option<usize>,
    offload_above: u64,
    idle_cores: Arc<IdleCores>,
    /// The core of a running worker, or of all batched ones.
    core: Option<Arc<BusyCore>>,
}

impl HashPool {
    /// Makes a pool for messages of these lengths, in bytes. `jobs` sets the number of messages at
    /// once; `None` lets the pool choose for this machine.
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

    /// Makes a pool of `jobs` sequential workers; `None` means one for each core.
    pub fn sequential(messages: usize, jobs: Option<NonZeroUsize>) -> HashPool {
        HashPool {
            messages,
            cores: jobs.unwrap_or_else(cores).get(),
            scheduler: None,
            offload_above: u64::MAX,
            // Fewer messages at once leave more cores for each of them.
            idle_cores: Arc::new(IdleCores::new(cores().get())),
        }
    }

    /// Returns the pool for messages that are not known yet, if this machine hashes each message
    /// alone. Otherwise the division of the messages depends on their lengths.
    pub fn for_unknown_messages(jobs: Option<NonZeroUsize>) -> Option<HashPool> {
        let is_sequential = jobs.is_some() || !lanes::are_preferred();
        is_sequential.then(|| HashPool::sequential(usize::MAX, jobs))
    }

    /// Halves the number of batched workers. For work that needs much memory per worker, and takes
    /// much longer than hashing.
    pub fn with_half_the_slots(mut self) -> HashPool {
        let scheduler = self
            .scheduler
            .map(|scheduler| LaneScheduler::new(scheduler.slots() / 2));
        self.scheduler = scheduler.map(Arc::new);
        self
    }

    /// Lets each worker use only its own core, for a program that has a pool for each client.
    pub fn without_idle_cores(mut self) -> HashPool {
        self.idle_cores = Arc::new(IdleCores::none());
        self
    }

    /// Returns the number of cores, which is the number of large messages in work at once.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Returns the largest number of workers that a pool chooses for this machine.
    pub fn workers_max() -> usize {
        cores().get() - 1 + SLOTS_MAX
    }

    /// Returns the largest number of workers of a pool with these jobs on this machine.
    pub fn workers_for(jobs: Option<NonZeroUsize>) -> usize {
        match jobs {
            Some(jobs) => jobs.get(),
            None if lanes::are_preferred() => HashPool::workers_max(),
            None => cores().get(),
        }
    }

    /// Returns a ticket for each worker.
    pub fn tickets(&self) -> impl Iterator<Item = WorkerTicket> {
        let (sequential, batched) = match &self.scheduler {
            None => (self.cores.min(self.messages), 0),
            Some(scheduler) => {
                let sequential = self.messages.min(self.cores - 1);
                (
                    sequential,
                    scheduler.slots().min(self.messages - sequential),
                )
            }
        };
        let slots = (0..sequential).map(|_| None).chain((0..batched).map(Some));
        let batched_core = (batched > 0).then(|| Arc::new(self.idle_cores.occupy()));
        slots.map(move |slot| {
            WorkerTicket(Worker {
                scheduler: self.scheduler.clone(),
                slot,
                offload_above: self.offload_above,
                idle_cores: self.idle_cores.clone(),
                core: slot.and(batched_core.clone()),
            })
        })
    }
}

fn cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl WorkerTicket {
    /// Starts the worker on the calling thread. A batched worker waits for the processor first.
    pub fn start(mut self) -> Worker {
        let core = self.0.core.take();
        self.0.core = core.or_else(|| Some(self.0.idle_cores.occupy().into()));
        if let (Some(scheduler), Some(slot)) = (&self.0.scheduler, self.0.slot) {
            scheduler.acquire_processor(slot);
        }
        self.0
    }
}

impl Worker {
    /// Whether the worker takes the smallest messages, not the largest.
    pub fn takes_smallest(&self) -> bool {
        self.slot.is_some()
    }

    /// The cores that the other workers do not need.
    pub fn idle_cores(&self) -> &Arc<IdleCores> {
        &self.idle_cores
    }

    /// Returns the stream for a message of `len` bytes.
    pub fn stream(&self, len: u64) -> Stream {
        self.stream_with_buffer(len, BUFFER_LEN)
    }

    /// Returns a second stream beside that of a message of `len` bytes, for its compressed form.
    pub fn secondary_stream(&self, len: u64) -> Stream {
        self.stream_with_buffer(len, SECONDARY_BUFFER_LEN)
    }

    fn stream_with_buffer(&self, len: u64, buffer_len: usize) -> Stream {
        Stream(match (&self.scheduler, self.slot) {
            (Some(scheduler), Some(slot)) => {
                StreamKind::Batched(BatchedStream::new(scheduler, slot, buffer_len))
            }
            _ if len > self.offload_above => {
                OffloadedStream::start(Sha256::new(), self.idle_cores.occupy())
                    .map_or_else(StreamKind::direct, StreamKind::Offloaded)
            }
            _ if len > OFFLOAD_LEN_MIN => {
                StreamKind::Large(LargeStream::new(len, &self.idle_cores))
            }
            _ => StreamKind::direct(),
        })
    }

    /// Runs a function that may block, for example on the network, while other batched workers use
    /// the processor. Without this, one slow download would stop all of them.
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
    Large(LargeStream),
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
            StreamKind::Large(stream) => stream.update(bytes),
            StreamKind::Offloaded(stream) => stream.update(bytes),
            StreamKind::Batched(stream) => stream.update(bytes),
        }
    }

    /// Returns the digest of the message.
    pub fn finish(self) -> [u8; 32] {
        match self.0 {
            StreamKind::Direct(hasher) => hasher.finish(),
            StreamKind::Large(stream) => stream.finish(),
            StreamKind::Offloaded(stream) => stream.finish(),
            StreamKind::Batched(stream) => stream.finish(),
        }
    }
}

/// Fills buffers of `len` bytes and passes each full one to `send`, which replaces it by an empty
/// one.
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

/// The length of a buffer, in bytes. Each buffer wakes another thread, which takes up to 0.1 ms on
/// another core. In measurements, larger buffers were faster, up to the third-level cache.
const BUFFER_LEN: usize = 512 * 1024;

/// The buffer length of a second stream. A message that is compressed to a quarter fills it at
/// about the same time as the message fills its own.
const SECONDARY_BUFFER_LEN: usize = 128 * 1024;

/// The smallest number of messages for batched workers. With fewer messages, most lanes would be
/// empty, and a message in a lane is slower.
const BATCH_MESSAGES_MIN: usize = 6;

/// The largest number of batched workers. Each has a decoder with its window and two buffers for
/// each stream. The rest of the 16 lanes is for second streams.
const SLOTS_MAX: usize = 12;

/// The shortest message that is worth the start of a second thread, in bytes.
const OFFLOAD_LEN_MIN: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
