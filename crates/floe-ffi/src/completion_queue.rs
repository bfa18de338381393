//! Completions that wait until the host takes them on a thread of its own.
//!
//! A descriptor is readable as long as completions wait, for hosts that poll.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::completion::Completion;

/// The waiting completions of one engine.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    waiting: Mutex<Pending>,
    arrived: Condvar,
    readable: OwnedFd,
}

#[derive(Debug, Default)]
struct Pending {
    completions: VecDeque<Completion>,
    /// The number of events among them.
    events: usize,
    /// The number of threads in `wait`.
    sleepers: usize,
    /// The queue has ended: no more completions follow.
    is_over: bool,
}

impl CompletionQueue {
    pub(crate) fn new() -> io::Result<CompletionQueue> {
        Ok(CompletionQueue {
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            readable: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Appends the completions of a round and empties `batch`.
    pub(crate) fn add(&self, batch: &mut Vec<Completion>) {
        let mut waiting = self.waiting.lock();
        let was_empty = waiting.completions.is_empty();
        waiting.events += batch.iter().filter(|it| it.is_event()).count();
        waiting.completions.extend(batch.drain(..));
        self.notify(waiting, was_empty);
    }

    /// Ends the queue.
    pub(crate) fn end(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_over = true;
        self.notify(waiting, true);
    }

    fn notify(&self, waiting: MutexGuard<'_, Pending>, is_new: bool) {
        if is_new {
            // Done under the lock. Otherwise a taker could empty the queue first, and the
            // descriptor would be readable without any completion.
            // The counter can be full only if the descriptor is already readable.
            let written = write(&self.readable, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok() || written == Err(Errno::AGAIN));
        }
        let sleepers = waiting.sleepers;
        drop(waiting);
        if sleepers > 0 {
            self.arrived.notify_all();
        }
    }

    /// Takes up to `most` completions without waiting. Returns whether there are none and the queue
    /// has ended.
    pub(crate) fn take(&self, most: usize, each: impl FnMut(Completion)) -> bool {
        let mut waiting = self.waiting.lock();
        let count = waiting.completions.len().min(most);
        let events = waiting.completions.iter().take(count);
        waiting.events -= events.filter(|it| it.is_event()).count();
        waiting.completions.drain(..count).for_each(each);
        let is_empty = waiting.completions.is_empty();
        if is_empty && !waiting.is_over {
            let cleared = read(&self.readable, &mut [0; 8]);
            debug_assert!(cleared.is_ok() || cleared == Err(Errno::AGAIN));
        }
        waiting.is_over && is_empty && count == 0
    }

    /// Drops all waiting completions and frees their memory.
    pub(crate) fn clear(&self) {
        let mut waiting = self.waiting.lock();
        waiting.completions = VecDeque::new();
        waiting.events = 0;
    }

    /// Waits until there is a completion, the queue has ended, or the timeout has passed.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let is_idle = |waiting: &mut Pending| waiting.completions.is_empty() && !waiting.is_over;
        let mut waiting = self.waiting.lock();
        waiting.sleepers += 1;
        self.arrived.wait_while_for(&mut waiting, is_idle, timeout);
        waiting.sleepers -= 1;
        // A completion may arrive at the very end of the timeout.
        !is_idle(&mut waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().completions.len()
    }

    /// Returns the number of waiting events.
    pub(crate) fn events(&self) -> usize {
        self.waiting.lock().events
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use floe_messages::Codec;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::completion::Kind;

    fn completions(ids: std::ops::Range<u64>) -> Vec<Completion> {
        ids.map(|request| Completion {
            request,
            tag: 0,
            kind: Kind::Done,
            method: 1,
            codec: Codec::Flat,
            payload: Vec::new(),
        })
        .collect()
    }

    fn is_readable(queue: &CompletionQueue) -> bool {
        let mut fds = [PollFd::new(&queue.readable, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn descriptor_is_readable_while_completions_wait() {
        let queue = CompletionQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.add(&mut completions(0..3));
        queue.add(&mut completions(3..5));
        let mut ids = Vec::new();
        assert!(!queue.take(4, |it| ids.push(it.request)));
        assert_eq!(ids.len(), 4);
        assert!(is_readable(&queue));
        assert!(!queue.take(9, |it| ids.push(it.request)));
        assert_eq!(ids, [0, 1, 2, 3, 4]);
        assert!(!is_readable(&queue));
        queue.end();
        assert!(is_readable(&queue));
        assert!(queue.take(1, drop));
        assert!(is_readable(&queue), "a polling host must notice the end");
    }

    #[test]
    fn wait_ends_with_completion_end_or_timeout() {
        let queue = CompletionQueue::new().unwrap();
        assert!(!queue.wait(Duration::from_millis(1)));
        for last in [false, true] {
            thread::scope(|scope| {
                let waiter = scope.spawn(|| queue.wait(Duration::from_secs(60)));
                thread::sleep(Duration::from_millis(20));
                if last {
                    queue.end()
                } else {
                    queue.add(&mut completions(0..1))
                }
                assert!(waiter.join().unwrap());
            });
            queue.take(9, drop);
        }
    }
}
