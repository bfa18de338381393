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

mod aside;
mod crew;
mod together;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use floe_hash::Sha256;
use floe_hash::lanes;

use aside::Aside;
use crew::Crew;
use together::Together;

/// How so many messages are shared by threads that hash.
#[derive(Debug)]
pub struct Hashing {
    messages: usize,
    cores: usize,
    crew: Option<Arc<Crew>>,
    /// The hash of a longer message gets a thread of its own.
    dominant_above: u64,
}

/// The place of a thread that has not begun.
#[derive(Debug)]
pub struct Place(Worker);

/// A thread at work. When it is dropped, its core is for the others.
#[derive(Debug)]
pub struct Worker {
    crew: Option<Arc<Crew>>,
    /// Its seat, if it is one of the crew.
    seat: Option<usize>,
    dominant_above: u64,
}

impl Hashing {
    /// What suits this machine and messages of these lengths, in bytes; or as many messages at once
    /// as are asked for.
    pub fn of(lens: impl Iterator<Item = u64>, jobs: Option<NonZeroUsize>) -> Hashing {
        match jobs {
            Some(_) => Hashing::alone(lens.count(), jobs),
            None => Hashing::suited(lens, cores()),
        }
    }

    fn suited(lens: impl Iterator<Item = u64>, cores: NonZeroUsize) -> Hashing {
        let (mut messages, mut total) = (0, 0_u64);
        for len in lens {
            messages += 1;
            total = total.saturating_add(len);
        }
        let mut hashing = Hashing::alone(messages, Some(cores));
        let cores = cores.get();
        if lanes::are_fast() && messages >= cores - 1 + CREW_MIN {
            hashing.crew = Some(Arc::new(Crew::new(CREW_MAX)));
        }
        if lanes::are_fast() && cores > 1 {
            hashing.dominant_above = ASIDE_LEN_MIN.max(total / (cores as u64 + 1));
        }
        hashing
    }

    /// As many threads as are asked for, else one for each core, and each by itself.
    pub fn alone(messages: usize, jobs: Option<NonZeroUsize>) -> Hashing {
        Hashing {
            messages,
            cores: jobs.unwrap_or_else(cores).get(),
            crew: None,
            dominant_above: u64::MAX,
        }
    }

    /// The same with half the threads, where each needs much memory for its own work and hashing is
    /// little beside that.
    pub fn with_half_a_crew(mut self) -> Hashing {
        let crew = self.crew.map(|crew| Crew::new(crew.seats() / 2));
        self.crew = crew.map(Arc::new);
        self
    }

    /// How many of the largest messages are under way at once.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The places of all threads.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let (alone, members) = match &self.crew {
            None => (self.cores.min(self.messages), 0),
            Some(crew) => {
                let alone = self.messages.min(self.cores - 1);
                (alone, crew.seats().min(self.messages - alone))
            }
        };
        let seats = (0..alone).map(|_| None).chain((0..members).map(Some));
        seats.map(|seat| {
            Place(Worker {
                crew: self.crew.clone(),
                seat,
                dominant_above: self.dominant_above,
            })
        })
    }
}

fn cores() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl Place {
    /// Begins. Called by the thread itself, which waits for its turn.
    pub fn take(self) -> Worker {
        if let (Some(crew), Some(seat)) = (&self.0.crew, self.0.seat) {
            crew.enter(seat);
        }
        self.0
    }
}

impl Worker {
    /// Whether it takes the smallest of the messages that are left, not the largest.
    pub fn takes_the_smallest(&self) -> bool {
        self.seat.is_some()
    }

    /// A stream for a message of `len` bytes.
    pub fn stream(&self, len: u64) -> Stream {
        self.stream_by(len, BUFFER_LEN)
    }

    /// A stream for what a message of `len` bytes is compressed to or was decoded from, beside
    /// that of the message itself.
    pub fn beside(&self, len: u64) -> Stream {
        self.stream_by(len, BUFFER_BESIDE_LEN)
    }

    fn stream_by(&self, len: u64, buffer_len: usize) -> Stream {
        Stream(match (&self.crew, self.seat) {
            (Some(crew), Some(seat)) => Kind::Together(Together::new(crew, seat, buffer_len)),
            _ if len > self.dominant_above => Aside::start().map_or_else(Kind::alone, Kind::Aside),
            _ => Kind::alone(),
        })
    }

    /// Does something that may wait for a network, while others of the crew go on.
    pub fn away<T>(&self, wait: impl FnOnce() -> T) -> T {
        match (&self.crew, self.seat) {
            (Some(crew), Some(seat)) => crew.away(seat, wait),
            _ => wait(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(crew) = &self.crew {
            crew.leave();
        }
    }
}

/// A SHA-256 stream: any number of updates, then the digest.
#[derive(Debug)]
pub struct Stream(Kind);

#[derive(Debug)]
enum Kind {
    Alone(Sha256),
    Aside(Aside),
    Together(Together),
}

impl Kind {
    fn alone() -> Kind {
        Kind::Alone(Sha256::new())
    }
}

impl Default for Stream {
    fn default() -> Stream {
        Stream(Kind::alone())
    }
}

impl Stream {
    /// Feeds the next bytes of the message.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Kind::Alone(hasher) => hasher.update(bytes),
            Kind::Aside(stream) => stream.update(bytes),
            Kind::Together(stream) => stream.update(bytes),
        }
    }

    /// The digest of everything fed so far.
    pub fn finish(self) -> [u8; 32] {
        match self.0 {
            Kind::Alone(hasher) => hasher.finish(),
            Kind::Aside(stream) => stream.finish(),
            Kind::Together(stream) => stream.finish(),
        }
    }
}

/// Fills buffers of `len` bytes one after the other and passes each full one to `send`, which
/// leaves an empty one in its place.
fn fill(filling: &mut Vec<u8>, len: usize, mut bytes: &[u8], mut send: impl FnMut(&mut Vec<u8>)) {
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
const BUFFER_BESIDE_LEN: usize = 128 * 1024;

/// With fewer most lanes would be empty most of the time, and a message in a lane is slower.
const CREW_MIN: usize = 6;

/// Each holds a decoder with its window, and two buffers of each stream. Of the 16 lanes the rest
/// is for the second streams.
const CREW_MAX: usize = 12;

/// A second thread for less than this is not worth its start.
const ASIDE_LEN_MIN: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests;
