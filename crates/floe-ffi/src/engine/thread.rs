//! The engine thread: its loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floe_ingress::Receiver;

use super::line::{LineKind, Lines};
use super::mail::Mail;
use super::running::Running;
use super::{Delivery, Shared, lock};
use crate::completion::{Completion, Kind, Outcome};
use crate::pool::Finished;
use crate::request::Request;
use crate::signals;

/// What the engine thread alone knows.
pub(super) struct Engine {
    pub(super) shared: Arc<Shared>,
    /// Accepted and given to workers, or waiting for one.
    pub(super) running: HashMap<u64, Running>,
    pub(super) lines: Lines,
    /// Completions for the queue that this round has brought.
    pub(super) batch: Vec<Completion>,
    /// Where replies are encoded that only a callback sees.
    pub(super) buffer: Vec<u8>,
    /// Cancelled before they were taken, and for how many rounds they are looked for.
    pub(super) cancelled_early: HashMap<u64, usize>,
    pub(super) lost_events: u64,
    /// When something has to be looked at, in milliseconds since the engine was opened.
    pub(super) next_look: u64,
    pub(super) is_closing: bool,
}

/// Runs until the engine is closed and everything is completed.
pub(super) fn run(shared: Arc<Shared>, receiver: Receiver<Request>) {
    shared.enter_as_engine();
    // Workers, servers and what they start have it from here.
    signals::block_sigpipe();
    // A panic here would leave hosts waiting for completions that never come.
    let bomb = AbortOnPanic;
    let mut engine = Engine::new(shared);
    engine.work(receiver);
    engine.end();
    std::mem::forget(bomb);
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Engine {
    fn new(shared: Arc<Shared>) -> Engine {
        Engine {
            lines: Lines::new(&shared.limits),
            shared,
            running: HashMap::new(),
            batch: Vec::new(),
            buffer: Vec::new(),
            cancelled_early: HashMap::new(),
            lost_events: 0,
            next_look: u64::MAX,
            is_closing: false,
        }
    }

    fn work(&mut self, mut receiver: Receiver<Request>) {
        // Whether there was something since the last sleep: then more is likely to come soon.
        let mut is_warm = false;
        loop {
            let mail = self.shared.read_mail();
            let has_mail = mail.is_some();
            if let Some(mail) = mail {
                self.attend_to(mail, &mut receiver);
            }
            let room = self.room();
            let taken = receiver.take(room, |request| self.dispatch(request));
            if taken < room {
                self.age_cancels(taken);
            }
            self.begin_waiting();
            self.look_after_running();
            self.flush();
            if self.is_closing && self.running.is_empty() {
                return;
            }
            match taken > 0 || has_mail {
                true => is_warm = true,
                false => self.wait(&mut receiver, room, std::mem::take(&mut is_warm)),
            }
        }
    }

    fn attend_to(&mut self, mail: Mail, receiver: &mut Receiver<Request>) {
        for finished in mail.finished {
            self.finish(finished);
        }
        for id in mail.cancelled {
            self.cancel(id);
        }
        if mail.closes && !self.is_closing {
            self.is_closing = true;
            receiver.close();
            // What was accepted up to now is completed by `dispatch`, as shut down.
            while receiver.take(usize::MAX, |request| self.dispatch(request)) > 0 {}
            self.cancel_all();
        }
        mail.acknowledge.iter().for_each(|flag| flag.raise());
    }

    /// How many requests may be taken, so that those in flight stay below their limit.
    fn room(&self) -> usize {
        let limit = self.shared.limits.in_flight;
        let own = self.running.len() + self.batch.len();
        let Delivery::Queue(queue) = &self.shared.delivery else {
            return limit.saturating_sub(own);
        };
        match limit.saturating_sub(own + queue.len()) {
            0 => {
                self.shared.is_stalled.store(true, Ordering::Release);
                // The host may have taken everything just before it could see that.
                limit.saturating_sub(own + queue.len())
            }
            room => room,
        }
    }

    /// Waits for requests, mail, or the next time to look after what is running. An engine that had
    /// something to do a moment ago turns for a while before it sleeps.
    fn wait(&self, receiver: &mut Receiver<Request>, room: usize, is_warm: bool) {
        let time = match self.next_look {
            u64::MAX => SLEEP_MAX,
            next => Duration::from_millis(next.saturating_sub(self.shared.now()).max(1)),
        };
        let has_mail = || self.shared.has_mail.load(Ordering::Acquire);
        // Without room, what waits in the ingress is no reason to stay awake.
        let has_room = room > 0;
        let (begin, patience) = (Instant::now(), &self.shared.patience);
        let came = is_warm && has_room && receiver.expect(patience.time(), has_mail);
        if !came {
            receiver.wait(time, has_room, has_mail);
        }
        if is_warm {
            patience.waited_since(begin);
        }
    }

    fn flush(&mut self) {
        if let (Delivery::Queue(queue), false) = (&self.shared.delivery, self.batch.is_empty()) {
            queue.add(&mut self.batch);
        }
    }

    /// Everything is completed: ends the threads, and says so.
    fn end(mut self) {
        let servers = std::mem::take(&mut *lock(&self.shared.servers));
        for server in servers.into_values() {
            // Twice: who closes an engine does not wait for slow clients of its servers.
            server.shutdown.shutdown();
            server.shutdown.shutdown();
            let _: std::thread::Result<()> = server.thread.join();
        }
        self.flush();
        self.lines.end();
        self.shared.close_mail();
        if let Delivery::Queue(queue) = &self.shared.delivery {
            queue.end();
        }
    }

    /// A worker has handed something back.
    fn finish(&mut self, finished: Finished) {
        let Some(running) = self.running.remove(&finished.request) else {
            return;
        };
        self.lines.of(LineKind::of(running.method)).pool.release();
        match finished.outcome {
            Outcome::Done(reply) => self.complete(&running, Kind::Done, reply),
            Outcome::Failed(failure) => self.fail(&running, &failure),
            Outcome::Cancelled => self.complete_as_ended(&running),
        }
    }
}

/// Nothing depends on it: an engine without requests sleeps until somebody wakes it.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
