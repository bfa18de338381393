//! Periodic work of the engine thread: deadlines, progress, slow requests.

use floe_messages::{EventKind, Slow};

use super::active_request::Reason;
use super::thread::Engine;
use crate::completion::{Kind, encode};

impl Engine {
    pub(super) fn schedule_poll(&mut self, time: u64) {
        self.next_poll = self.next_poll.min(time);
    }

    /// Checks deadlines, reports progress, and reports slow requests.
    pub(super) fn poll_active(&mut self) {
        if self.next_poll == u64::MAX || self.shared.now() < self.next_poll {
            return;
        }
        let now = self.shared.now();
        let interval = self.shared.limits.progress_interval.as_millis() as u64;
        let slow_after = self.shared.limits.slow_after.as_millis() as u64;
        let (mut next, mut late, mut updates, mut slow) = (u64::MAX, vec![], vec![], vec![]);
        for active in self.active.values_mut() {
            if let Some(deadline) = active.deadline.filter(|_| active.reason.is_none()) {
                if deadline <= now {
                    late.push(active.id)
                } else {
                    next = next.min(deadline);
                }
            }
            let Some(begun) = active.begun else {
                continue;
            };
            if active.wants_progress {
                next = next.min(now + interval);
                let state = active.state.as_ref();
                let elapsed_ms = now - active.queued;
                if let Some(progress) = state.and_then(|state| state.take_update(elapsed_ms)) {
                    let payload = encode(active.codec, &progress);
                    updates.push(active.completion(Kind::Progress, payload));
                }
            }
            if now >= begun + slow_after * (active.slow + 1) {
                active.slow += 1;
                slow.push(Slow {
                    request: active.id,
                    method: active.method as u64,
                    elapsed_ms: now - begun,
                });
            }
            next = next.min(begun + slow_after * (active.slow + 1));
        }
        self.next_poll = next;
        late.into_iter()
            .for_each(|id| self.end_early(id, Reason::Deadline));
        updates
            .into_iter()
            .for_each(|completion| self.send(completion));
        for event in slow {
            let payload = encode(self.shared.codec, &event);
            self.emit(EventKind::Slow, payload);
        }
    }
}
