//! The engine thread and its loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floe_queue::Receiver;

use super::active_request::ActiveRequest;
use super::work_queue::WorkQueues;
use super::{Delivery, Inbox, Shared};
use crate::completion::{Completion, JobError, JobOutcome, Kind};
use crate::request::Request;
use crate::signals;

/// The state of the engine thread.
pub(super) struct Engine {
    pub(super) shared: Arc<Shared>,
    /// Requests that a worker handles, or that wait for one.
    pub(super) active: HashMap<u64, ActiveRequest>,
    pub(super) work_queues: WorkQueues,
    /// The completions of this round for the queue.
    pub(super) batch: Vec<Completion>,
    /// The buffer for replies that only a callback reads.
    pub(super) buffer: Vec<u8>,
    /// Requests cancelled before they were taken, with the number of rounds for which they are
    /// remembered.
    pub(super) cancelled_early: HashMap<u64, usize>,
    pub(super) lost_events: u64,
    /// The time of the next poll, in milliseconds since the engine was opened.
    pub(super) next_poll: u64,
    pub(super) is_closing: bool,
}

/// Runs until the engine is closed and all requests are completed.
pub(super) fn run(shared: Arc<Shared>, receiver: Receiver<Request>) {
    shared.enter(true);
    // Workers, servers and their threads inherit the signal mask.
    signals::block_sigpipe();
    // After a panic, hosts would wait forever for their completions.
    let abort_on_panic = AbortOnPanic;
    let mut engine = Engine {
        work_queues: WorkQueues::new(&shared.limits),
        shared,
        active: HashMap::new(),
        batch: Vec::new(),
        buffer: Vec::new(),
        cancelled_early: HashMap::new(),
        lost_events: 0,
        next_poll: u64::MAX,
        is_closing: false,
    };
    engine.work(receiver);
    engine.end();
    std::mem::forget(abort_on_panic);
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Engine {
    fn work(&mut self, mut receiver: Receiver<Request>) {
        // Set if there was work since the last sleep. More work is then likely to come soon.
        let mut is_warm = false;
        loop {
            let inbox = self.shared.take_inbox();
            let has_inbox_items = inbox.is_some();
            if let Some(inbox) = inbox {
                self.process_inbox(inbox, &mut receiver);
            }
            let room = self.room();
            let taken = receiver.take(room, |request| self.dispatch(request));
            if taken < room {
                self.expire_early_cancels(taken);
            }
            self.start_waiting();
            self.poll_active();
            self.flush();
            if self.is_closing && self.active.is_empty() {
                return;
            }
            if taken > 0 || has_inbox_items {
                is_warm = true;
            } else {
                self.wait(&mut receiver, room, std::mem::take(&mut is_warm))
            }
        }
    }

    fn process_inbox(&mut self, inbox: Inbox, receiver: &mut Receiver<Request>) {
        for (request, outcome) in inbox.finished {
            self.finish(request, outcome);
        }
        for id in inbox.cancelled {
            self.cancel(id);
        }
        if inbox.closes && !self.is_closing {
            self.is_closing = true;
            receiver.close();
            // `dispatch` completes the requests accepted so far as shut down.
            while receiver.take(usize::MAX, |request| self.dispatch(request)) > 0 {}
            self.cancel_all();
        }
        // Last, because it tells other threads that everything above is done.
        drop(inbox.acknowledge);
    }

    /// Returns how many requests may be taken without exceeding the limit of requests in flight.
    fn room(&self) -> usize {
        let limit = self.shared.limits.in_flight;
        let own = self.active.len() + self.batch.len();
        let Delivery::Queue(queue) = &self.shared.delivery else {
            return limit.saturating_sub(own);
        };
        match limit.saturating_sub(own + queue.len()) {
            0 => {
                self.shared.is_stalled.store(true, Ordering::Release);
                // The host may have taken all completions just before the flag was set.
                limit.saturating_sub(own + queue.len())
            }
            room => room,
        }
    }

    /// Waits for requests, for the inbox, or until the next poll. Spins before it sleeps if there
    /// was work a moment ago.
    fn wait(&self, receiver: &mut Receiver<Request>, room: usize, is_warm: bool) {
        let time = match self.next_poll {
            u64::MAX => SLEEP_MAX,
            next => Duration::from_millis(next.saturating_sub(self.shared.now()).max(1)),
        };
        let has_inbox_items = || self.shared.has_inbox_items.load(Ordering::Acquire);
        // Without room, waiting requests are not a reason to stay awake.
        let has_room = room > 0;
        let (begin, spin) = (Instant::now(), &self.shared.engine_spin);
        let came = is_warm && has_room && receiver.spin_for_value(spin.duration(), has_inbox_items);
        if !came {
            receiver.wait(time, has_room, has_inbox_items);
        }
        if is_warm {
            spin.record_wait(begin);
        }
    }

    fn flush(&mut self) {
        if let (Delivery::Queue(queue), false) = (&self.shared.delivery, self.batch.is_empty()) {
            queue.add(&mut self.batch);
        }
    }

    /// Ends all threads after all requests are completed.
    fn end(mut self) {
        let servers = std::mem::take(&mut *self.shared.servers.lock());
        for server in servers.into_values() {
            // A second stop cuts connections, so that closing an engine does not wait for slow
            // clients.
            server.shutdown.shutdown();
            server.shutdown.shutdown();
            let _: std::thread::Result<()> = server.thread.join();
        }
        self.flush();
        self.work_queues.end();
        let mut inbox = self.shared.inbox.lock();
        inbox.is_over = true;
        inbox.acknowledge.clear();
        drop(inbox);
        if let Delivery::Queue(queue) = &self.shared.delivery {
            queue.end();
        }
    }

    /// Completes a request with the result of its worker.
    fn finish(&mut self, request: u64, outcome: JobOutcome) {
        let Some(active) = self.active.remove(&request) else {
            return;
        };
        self.work_queues.of(active.method).idle += 1;
        match outcome {
            Ok(reply) => self.complete(&active, Kind::Done, reply),
            Err(JobError::Failed(failure)) => self.fail(&active, &failure),
            Err(JobError::Cancelled) => self.complete_ended(&active, active.reason),
        }
    }
}

/// An arbitrary bound: an idle engine sleeps until it is woken.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
