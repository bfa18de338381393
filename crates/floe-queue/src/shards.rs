//! A few queues with a lock, for threads without a queue of their own.

use std::collections::VecDeque;
use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::SubmitError;
use crate::sync::{Padded, lock};

pub(crate) struct Shards<T> {
    shards: Box<[Padded<Shard<T>>]>,
    limit: usize,
}

struct Shard<T> {
    /// The number of waiting values, readable without the lock.
    len: AtomicUsize,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    values: VecDeque<T>,
    is_closed: bool,
}

impl<T> Shards<T> {
    /// Creates `count` shards that hold at most `limit` values each.
    pub(crate) fn new(count: usize, limit: usize) -> Shards<T> {
        let shard = || Shard {
            len: AtomicUsize::new(0),
            queue: Mutex::new(Queue {
                values: VecDeque::new(),
                is_closed: false,
            }),
        };
        Shards {
            shards: (0..count).map(|_| Padded(shard())).collect(),
            limit,
        }
    }

    /// Appends a value to the shard of the calling thread. Calls `make` under the lock of the
    /// shard.
    pub(crate) fn push(&self, make: impl FnOnce() -> T) -> Result<(), SubmitError<T>> {
        let shard = &self.shards[own_index() % self.shards.len()].0;
        let mut queue = lock(&shard.queue);
        if queue.is_closed {
            return Err(SubmitError::Closed(None));
        }
        if queue.values.len() >= self.limit {
            return Err(SubmitError::Busy);
        }
        queue.values.push_back(make());
        shard.len.store(queue.values.len(), Ordering::Release);
        Ok(())
    }

    /// Takes up to `max` values and returns their number. The values of a shard are swapped into
    /// `spare` as a whole; `spare` keeps those that exceed `max`.
    pub(crate) fn take(
        &self,
        max: usize,
        spare: &mut VecDeque<T>,
        mut each: impl FnMut(T),
    ) -> usize {
        let mut count = 0;
        let mut shards = self.shards.iter();
        while count < max {
            if spare.is_empty() {
                let Some(Padded(shard)) = shards.find(|shard| !shard.0.is_empty()) else {
                    break;
                };
                let mut queue = lock(&shard.queue);
                mem::swap(&mut queue.values, spare);
                shard.len.store(0, Ordering::Release);
            }
            let some = spare.len().min(max - count);
            spare.drain(..some).for_each(&mut each);
            count += some;
        }
        count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.0.is_empty())
    }

    /// Stops accepting values.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            lock(&shard.0.queue).is_closed = true;
        }
    }
}

impl<T> Shard<T> {
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }
}

/// Assigns shards to threads in turn, so that a few threads never share one.
fn own_index() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    // The thread is about to end and its storage is gone. It submits at most a few values more.
    INDEX.try_with(|index| *index).unwrap_or(0)
}
