//! Connections on their way to the thread that verifies passwords.
//!
//! One verification takes a fraction of a second. Therefore all connections with the same name and
//! password wait for one verification, the number of connections is bounded, also for each address,
//! and an address that has failed too often is refused.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::job_queue::Job;
use crate::auth::client_id::ClientId;
use crate::auth::connection_login::Verdict;
use crate::auth::logins::{Logins, PasswordCheck};
use crate::http::refusal::Refusal;

/// The passwords that wait to be verified.
#[derive(Debug)]
pub(crate) struct LoginQueue {
    logins: Arc<Logins>,
    state: Mutex<QueueState>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The first one is being verified.
    attempts: VecDeque<Attempt>,
    is_stopped: bool,
}

/// A name and password, and the connections that wait for the result.
#[derive(Debug)]
pub(crate) struct Attempt {
    check: Arc<PasswordCheck>,
    /// The client whose attempt counts if the password is wrong.
    pub(crate) from: ClientId,
    pub(crate) waiting: Vec<Job>,
}

impl LoginQueue {
    pub(crate) fn new(logins: Arc<Logins>) -> LoginQueue {
        LoginQueue {
            logins,
            state: Mutex::default(),
            ready: Condvar::new(),
        }
    }

    pub(crate) fn logins(&self) -> &Arc<Logins> {
        &self.logins
    }

    /// Queues a connection.
    ///
    /// Errors: the connection cannot wait, and has a refusal as its verdict.
    pub(crate) fn push(&self, mut job: Job, now: Instant) -> Result<(), Job> {
        let Some(check) = job.connection.take_password_check() else {
            return Err(job);
        };
        let mut state = self.state.lock();
        if let Err(refusal) = self.admit(&state, &check, &job, now) {
            drop(state);
            job.connection.set_verdict(Verdict::Refused(refusal));
            return Err(job);
        }
        match state.find(&check) {
            Some(attempt) => attempt.waiting.push(job),
            None => state.attempts.push_back(Attempt {
                from: job.connection.client_id(),
                check: Arc::from(check),
                waiting: vec![job],
            }),
        }
        self.note_waiting(&state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for a password. [`LoginQueue::finish`] must follow. `None` when the queue is stopped.
    pub(crate) fn next(&self) -> Option<Arc<PasswordCheck>> {
        let must_wait = |state: &mut QueueState| state.attempts.is_empty() && !state.is_stopped;
        let mut state = self.state.lock();
        self.ready.wait_while(&mut state, must_wait);
        if state.is_stopped {
            None
        } else {
            state.attempts.front().map(|attempt| attempt.check.clone())
        }
    }

    /// Takes out the connections that wait for the password of the last [`LoginQueue::next`].
    pub(crate) fn finish(&self) -> Option<Attempt> {
        let mut state = self.state.lock();
        let attempt = state.attempts.pop_front();
        self.note_waiting(&state);
        attempt
    }

    /// Ends the thread that verifies passwords.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.ready.notify_all();
    }

    /// Checks whether a connection may wait. The first one with a password counts as an attempt
    /// of its address.
    fn admit(
        &self,
        state: &QueueState,
        check: &PasswordCheck,
        job: &Job,
        now: Instant,
    ) -> Result<(), Refusal> {
        let is_full = state.connections() >= CONNECTIONS_MAX
            || state.connections_of(job.connection.client_id()) >= CONNECTIONS_OF_ADDRESS_MAX;
        if is_full {
            return Err(Refusal::LoginQueueFull);
        }
        if state
            .attempts
            .iter()
            .any(|attempt| attempt.check.key == check.key)
        {
            return Ok(());
        }
        let name = check.logged_name();
        let from = job.connection.client_id();
        self.logins.count_attempt(from, name.as_deref(), now)
    }

    fn note_waiting(&self, state: &QueueState) {
        let waiting = state.connections() as u64;
        let counters = &self.logins.counters;
        counters.waiting.store(waiting, Ordering::Relaxed);
    }
}

impl QueueState {
    fn find(&mut self, check: &PasswordCheck) -> Option<&mut Attempt> {
        let mut attempts = self.attempts.iter_mut();
        attempts.find(|attempt| attempt.check.key == check.key)
    }

    /// Returns how many connections of a client wait.
    fn connections_of(&self, client: ClientId) -> usize {
        let waiting = self.attempts.iter().flat_map(|attempt| &attempt.waiting);
        waiting
            .filter(|job| job.connection.client_id() == client)
            .count()
    }

    fn connections(&self) -> usize {
        self.attempts
            .iter()
            .map(|attempt| attempt.waiting.len())
            .sum()
    }
}

/// How many connections may wait: those of ten clients of Nix, which have 25 each. If each of them
/// has another password, the last one waits about ten seconds.
const CONNECTIONS_MAX: usize = 256;

/// How many of them one address may have, so that it leaves room for the others.
const CONNECTIONS_OF_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;
