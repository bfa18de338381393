//! Connections on their way from the network threads to the workers.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use super::connection::Connection;

/// The connections that wait for a worker. There cannot be more than there are connections.
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

/// A connection that is lent to a worker.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) connection: Box<Connection>,
    /// The number of the network thread that the connection belongs to.
    pub(crate) thread: usize,
    /// The connection's slot in that thread.
    pub(crate) slot: usize,
}

impl JobQueue {
    pub(crate) fn push(&self, job: Job) {
        self.state.lock().jobs.push_back(job);
        self.ready.notify_one();
    }

    /// Ends each worker when it has returned the connection that it works on.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.ready.notify_all();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().jobs.is_empty()
    }

    /// Waits for a job. `None` when the queue is stopped.
    pub(crate) fn pop(&self) -> Option<Job> {
        let must_wait = |state: &mut QueueState| state.jobs.is_empty() && !state.is_stopped;
        let mut state = self.state.lock();
        self.ready.wait_while(&mut state, must_wait);
        if state.is_stopped {
            None
        } else {
            state.jobs.pop_front()
        }
    }
}
