//! Requests that take time: begun, cancelled, watched and completed.

use std::mem;
use std::num::NonZeroU64;
use std::sync::Arc;

use floe_engine::Cancel;
use floe_messages::{Codec, ErrorKind, EventKind, Lost, Method, Slow};

use super::thread::{Engine, Line};
use super::{CANCELS_MAX, Delivery};
use crate::completion::{Completion, Failure, Kind, Waiter, encode};
use crate::limits::EVENTS_MAX;
use crate::pool::Job;
use crate::progress::ProgressCell;
use crate::queue::CompletionQueue;
use crate::request::Request;

/// A request that a worker does, or will.
pub(super) struct Running {
    pub(super) id: u64,
    pub(super) tag: u64,
    pub(super) method: Method,
    pub(super) codec: Codec,
    pub(super) waiter: Option<Arc<Waiter>>,
    /// Both are there once it waits for a worker.
    work: Option<(Cancel, Arc<ProgressCell>)>,
    /// Why it is to end early.
    reason: Option<Reason>,
    deadline: Option<u64>,
    wants_progress: bool,
    /// When a worker got it, in milliseconds since the engine was opened.
    begun: Option<u64>,
    /// How often it was reported as slow.
    slow: u64,
}

/// Why a request is to end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Cancelled,
    Deadline,
    ShutDown,
}

impl Running {
    /// One that is not kept, since it is answered at once.
    pub(super) fn at_once(request: &mut Request) -> Running {
        Running {
            id: request.id,
            tag: request.tag,
            method: request.method,
            codec: request.codec,
            waiter: request.extra.as_mut().and_then(|extra| extra.waiter.take()),
            work: None,
            reason: None,
            deadline: request.deadline.map(NonZeroU64::get),
            wants_progress: request.wants_progress,
            begun: None,
            slow: 0,
        }
    }
}

impl Engine {
    pub(super) fn line(&mut self, method: Method) -> &mut Line {
        match method {
            Method::Resolve
            | Method::Install
            | Method::Copy
            | Method::Verify
            | Method::Nar
            | Method::Serve
            | Method::Stop => &mut self.moves,
            _ => &mut self.queries,
        }
    }

    /// Queues a request for the workers.
    pub(super) fn queue_for_work(&mut self, request: Request, mut running: Running) {
        self.look_at(running.deadline.unwrap_or(u64::MAX));
        let cancel = Cancel::default();
        let progress = Arc::new(ProgressCell::new());
        running.work = Some((cancel.clone(), progress.clone()));
        let job = Box::new(Job {
            request,
            cancel,
            progress,
        });
        let method = running.method;
        self.running.insert(running.id, running);
        self.line(method).waiting.push_back(job);
    }

    /// Gives what waits to workers that are idle.
    pub(super) fn begin_waiting(&mut self) {
        if self.queries.waiting.is_empty() && self.moves.waiting.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        for method in [Method::PathInfo, Method::Install] {
            loop {
                let line = self.line(method);
                if line.waiting.is_empty() || !line.pool.has_room() {
                    break;
                }
                let Some(job) = line.waiting.pop_front() else {
                    break;
                };
                let id = job.request.id;
                match line.pool.begin(job, &shared) {
                    Ok(()) => self.has_begun(id),
                    Err(job) => {
                        let text = "the system gives no thread to work on it; try again later";
                        self.fail_unbegun(job.request.id, ErrorKind::Failed, text);
                    }
                }
            }
        }
    }

    fn has_begun(&mut self, id: u64) {
        let now = self.shared.now();
        let slow = now + self.shared.limits.slow_after.as_millis() as u64;
        let soon = now + self.shared.limits.progress_interval.as_millis() as u64;
        let mut look = slow;
        if let Some(running) = self.running.get_mut(&id) {
            running.begun = Some(now);
            if running.wants_progress {
                look = soon;
            }
        }
        self.look_at(look);
    }

    fn look_at(&mut self, time: u64) {
        self.next_look = self.next_look.min(time);
    }

    /// The request is to end. Nothing happens to one that has ended; one that was not taken yet is
    /// remembered.
    pub(super) fn cancel(&mut self, id: u64) {
        match self.running.contains_key(&id) {
            true => self.end_early(id, Reason::Cancelled),
            // The thread that cancels may be ahead of the one that submitted, in another lane.
            false => {
                // In so many rounds all is taken that a lane can hold.
                let rounds = self.shared.limits.per_thread / floe_ingress::PER_ROUND + 2;
                if self.cancelled_early.len() < CANCELS_MAX {
                    self.cancelled_early.insert(id, rounds);
                }
            }
        }
    }

    /// Forgets cancellations of requests that cannot come any more.
    /// `taken` is what a round over all lanes has brought.
    pub(super) fn age_cancels(&mut self, taken: usize) {
        self.cancelled_early.retain(|_, rounds| {
            *rounds -= 1;
            *rounds > 0 && taken > 0
        });
    }

    pub(super) fn cancel_all(&mut self) {
        let ids: Vec<u64> = self.running.keys().copied().collect();
        for id in ids {
            self.end_early(id, Reason::ShutDown);
        }
    }

    fn end_early(&mut self, id: u64, reason: Reason) {
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        // The first reason counts.
        running.reason.get_or_insert(reason);
        if let Some((cancel, _)) = &running.work {
            cancel.raise();
        }
        if running.begun.is_none() {
            let method = running.method;
            let waiting = &mut self.line(method).waiting;
            waiting.retain(|job| job.request.id != id);
            if let Some(running) = self.running.remove(&id) {
                self.complete_as_ended(&running);
            }
        }
    }

    fn fail_unbegun(&mut self, id: u64, kind: ErrorKind, message: &str) {
        if let Some(running) = self.running.remove(&id) {
            self.fail(&running, &Failure::new(kind, message));
        }
    }

    /// The terminal completion of a request that was told to end, and did.
    pub(super) fn complete_as_ended(&mut self, running: &Running) {
        match running.reason {
            Some(Reason::Deadline) => self.fail(running, &late()),
            Some(Reason::ShutDown) => self.complete(running, Kind::ShutDown, Vec::new()),
            Some(Reason::Cancelled) | None => {
                self.complete(running, Kind::Cancelled, Vec::new());
            }
        }
    }

    /// Deadlines, progress and slow requests.
    pub(super) fn look_after_running(&mut self) {
        if self.next_look == u64::MAX || self.shared.now() < self.next_look {
            return;
        }
        let now = self.shared.now();
        let interval = self.shared.limits.progress_interval.as_millis() as u64;
        let slow_after = self.shared.limits.slow_after.as_millis() as u64;
        let (mut next, mut late, mut news, mut slow) = (u64::MAX, vec![], vec![], vec![]);
        for running in self.running.values_mut() {
            if let Some(deadline) = running.deadline.filter(|_| running.reason.is_none()) {
                match deadline <= now {
                    true => late.push(running.id),
                    false => next = next.min(deadline),
                }
            }
            let Some(begun) = running.begun else {
                continue;
            };
            if running.wants_progress {
                next = next.min(now + interval);
                let work = running.work.as_ref();
                if let Some(progress) = work.and_then(|(_, progress)| progress.news()) {
                    let payload = encode(running.codec, &progress);
                    news.push(running.notice(Kind::Progress, payload));
                }
            }
            if now >= begun + slow_after * (running.slow + 1) {
                running.slow += 1;
                slow.push(Slow {
                    request: running.id,
                    method: running.method as u64,
                    elapsed_ms: now - begun,
                });
            }
            next = next.min(begun + slow_after * (running.slow + 1));
        }
        self.next_look = next;
        late.into_iter()
            .for_each(|id| self.end_early(id, Reason::Deadline));
        news.into_iter().for_each(|notice| self.send(notice));
        for event in slow {
            let payload = encode(self.shared.codec, &event);
            self.emit(EventKind::Slow, payload);
        }
    }

    /// Tells all who have subscribed.
    pub(super) fn emit(&mut self, kind: EventKind, payload: Vec<u8>) {
        let shared = self.shared.clone();
        let event = event(kind, shared.codec, payload);
        for subscription in shared.subscriptions.of(kind) {
            // An earlier callback of this event may have removed it.
            if !subscription.is_alive() {
                continue;
            }
            match (&subscription.callback, &shared.delivery) {
                (Some(callback), _) => callback.call(&event),
                (None, Delivery::Callback(callback)) => callback.call(&event),
                (None, Delivery::Queue(queue)) => self.queue_event(queue, event.clone()),
            }
        }
    }

    fn queue_event(&mut self, queue: &CompletionQueue, it: Completion) {
        let waiting = queue.events() + self.batch.iter().filter(|it| it.is_event()).count();
        if waiting >= EVENTS_MAX {
            self.lost_events += 1;
            return;
        }
        if self.lost_events > 0 {
            let count = mem::take(&mut self.lost_events);
            let payload = encode(it.codec, &Lost { count });
            self.batch.push(event(EventKind::Lost, it.codec, payload));
        }
        self.batch.push(it);
    }
}

fn event(kind: EventKind, codec: Codec, payload: Vec<u8>) -> Completion {
    Completion {
        request: 0,
        tag: 0,
        kind: Kind::Event,
        method: kind as u32,
        codec,
        payload,
    }
}

impl Running {
    pub(super) fn notice(&self, kind: Kind, payload: Vec<u8>) -> Completion {
        Completion {
            request: self.id,
            tag: self.tag,
            kind,
            method: self.method as u32,
            codec: self.codec,
            payload,
        }
    }
}

pub(super) fn late() -> Failure {
    Failure::new(
        ErrorKind::Deadline,
        "its deadline has passed before it was done",
    )
}
