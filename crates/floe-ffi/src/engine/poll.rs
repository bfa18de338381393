//! What the engine thread does as time goes on: deadlines, progress, slow requests.

use floe_messages::{EventKind, Slow};

use super::running::Reason;
use super::thread::Engine;
use crate::completion::{Kind, encode};

impl Engine {
    pub(super) fn look_at(&mut self, time: u64) {
        self.next_look = self.next_look.min(time);
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
}
