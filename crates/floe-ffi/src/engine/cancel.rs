//! Requests that end before they are done.

use floe_messages::ErrorKind;

use super::CANCELS_MAX;
use super::active_request::{ActiveRequest, Reason};
use super::thread::Engine;
use super::work_queue::WorkKind;
use crate::completion::{Failure, Kind};

impl Engine {
    /// The request is to end. Nothing happens to one that has ended; one that was not taken yet is
    /// remembered.
    pub(super) fn cancel(&mut self, id: u64) {
        match self.active.contains_key(&id) {
            true => self.end_early(id, Reason::Cancelled),
            // The thread that cancels may be ahead of the one that submitted, in another lane.
            false => {
                // In so many rounds all is taken that a lane can hold.
                let rounds = self.shared.limits.per_thread / floe_queue::MAX_PER_ROUND + 2;
                if self.cancelled_early.len() < CANCELS_MAX {
                    self.cancelled_early.insert(id, rounds);
                }
            }
        }
    }

    /// Forgets cancellations of requests that cannot come any more.
    /// `taken` is what a round over all lanes has brought.
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
        // The first reason counts.
        active.reason.get_or_insert(reason);
        if let Some((cancel, _)) = &active.work {
            cancel.raise();
        }
        if active.begun.is_none() {
            let kind = WorkKind::of(active.method);
            let waiting = &mut self.work_queues.of(kind).waiting;
            waiting.retain(|job| job.request.id != id);
            if let Some(active) = self.active.remove(&id) {
                self.complete_ended(&active);
            }
        }
    }

    /// The terminal completion of a request that was told to end, and did.
    pub(super) fn complete_ended(&mut self, active: &ActiveRequest) {
        match active.reason {
            Some(Reason::Deadline) => self.fail(active, &deadline_failure()),
            Some(Reason::ShutDown) => self.complete(active, Kind::ShutDown, Vec::new()),
            Some(Reason::Cancelled) | None => {
                self.complete(active, Kind::Cancelled, Vec::new());
            }
        }
    }
}

pub(super) fn deadline_failure() -> Failure {
    Failure::new(
        ErrorKind::Deadline,
        "its deadline has passed before it was done",
    )
}
