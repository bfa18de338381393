//! Requests that end before they are done.

use floe_messages::ErrorKind;

use super::CANCELS_MAX;
use super::active_request::{ActiveRequest, Reason};
use super::thread::Engine;
use crate::completion::{Failure, Kind};

impl Engine {
    /// Asks a request to end. Has no effect on a completed request. A request that has not been
    /// taken yet is remembered.
    pub(super) fn cancel(&mut self, id: u64) {
        if self.active.contains_key(&id) {
            self.end_early(id, Reason::Cancelled);
        } else if self.cancelled_early.len() < CANCELS_MAX {
            // The request may still be in the queue of another thread. After that many rounds, a
            // full thread queue has been emptied.
            let rounds = self.shared.limits.per_thread / floe_queue::MAX_PER_ROUND + 2;
            self.cancelled_early.insert(id, rounds);
        }
    }

    /// Forgets cancellations of requests that can no longer arrive. `taken` is the number of
    /// requests of a round over all thread queues.
    pub(super) fn expire_early_cancels(&mut self, taken: usize) {
        self.cancelled_early.retain(|_, rounds| {
            *rounds -= 1;
            *rounds > 0 && taken > 0
        });
    }

    pub(super) fn cancel_all(&mut self) {
        let ids: Vec<u64> = self.active.keys().copied().collect();
        for id in ids {
            self.end_early(id, Reason::ShutDown);
        }
    }

    pub(super) fn end_early(&mut self, id: u64, reason: Reason) {
        let Some(active) = self.active.get_mut(&id) else {
            return;
        };
        // The first reason is kept.
        active.reason.get_or_insert(reason);
        if let Some(state) = &active.state {
            state.cancel.raise();
        }
        if active.begun.is_none() {
            let waiting = &mut self.work_queues.of(active.method).waiting;
            waiting.retain(|job| job.request.id != id);
            if let Some(active) = self.active.remove(&id) {
                self.complete_ended(&active, active.reason);
            }
        }
    }

    /// Completes a request that has ended early. Without a reason, it was cancelled.
    pub(super) fn complete_ended(&mut self, active: &ActiveRequest, reason: Option<Reason>) {
        let kind = match reason {
            Some(Reason::Deadline) => {
                let text = "the deadline has passed before the request was done";
                return self.fail(active, &Failure::new(ErrorKind::Deadline, text));
            }
            Some(Reason::ShutDown) => Kind::ShutDown,
            Some(Reason::Cancelled) | None => Kind::Cancelled,
        };
        self.complete(active, kind, Vec::new());
    }
}
