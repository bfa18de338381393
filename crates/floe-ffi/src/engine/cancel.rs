//! Requests that end before they are done.

use floe_messages::ErrorKind;

use super::CANCELS_MAX;
use super::line::LineKind;
use super::running::{Reason, Running};
use super::thread::Engine;
use crate::completion::{Failure, Kind};

impl Engine {
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

    pub(super) fn end_early(&mut self, id: u64, reason: Reason) {
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        // The first reason counts.
        running.reason.get_or_insert(reason);
        if let Some((cancel, _)) = &running.work {
            cancel.raise();
        }
        if running.begun.is_none() {
            let kind = LineKind::of(running.method);
            let waiting = &mut self.lines.of(kind).waiting;
            waiting.retain(|job| job.request.id != id);
            if let Some(running) = self.running.remove(&id) {
                self.complete_as_ended(&running);
            }
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
}

pub(super) fn late() -> Failure {
    Failure::new(
        ErrorKind::Deadline,
        "its deadline has passed before it was done",
    )
}
