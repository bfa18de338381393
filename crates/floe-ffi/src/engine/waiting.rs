//! From the engine thread to the workers.

use std::sync::Arc;

use floe_engine::Cancel;
use floe_messages::ErrorKind;

use super::line::LineKind;
use super::running::Running;
use super::thread::Engine;
use crate::completion::Failure;
use crate::pool::Job;
use crate::progress::ProgressCell;
use crate::request::Request;

impl Engine {
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
        self.lines.of(LineKind::of(method)).waiting.push_back(job);
    }

    /// Gives what waits to workers that are idle.
    pub(super) fn begin_waiting(&mut self) {
        if self.lines.are_empty() {
            return;
        }
        let shared = self.shared.clone();
        for kind in LineKind::ALL {
            loop {
                let line = self.lines.of(kind);
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

    fn fail_unbegun(&mut self, id: u64, kind: ErrorKind, message: &str) {
        if let Some(running) = self.running.remove(&id) {
            self.fail(&running, &Failure::new(kind, message));
        }
    }
}
