//! Connections on their way from the network's threads to the workers.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::net::connection::Connection;

/// The connections that wait for a worker. Bounded by the number of connections.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    state: Mutex<QueueState>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    is_stopped: bool,
}

/// A connection that was lent, and to where it goes back.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) connection: Box<Connection>,
    /// Which of the network's threads it belongs to.
    pub(crate) thread: usize,
    /// Its place there.
    pub(crate) slot: usize,
}

impl JobQueue {
    pub(crate) fn push(&self, job: Job) {
        self.state().jobs.push_back(job);
        self.ready.notify_one();
    }

    /// Framing the workers once each has given back what it has.
    pub(crate) fn stop(&self) {
        self.state().is_stopped = true;
        self.ready.notify_all();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().jobs.is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
