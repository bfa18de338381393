//! The start of requests on workers.

use std::sync::Arc;

use floe_messages::ErrorKind;

use super::active_request::ActiveRequest;
use super::thread::Engine;
use super::work_queue::Job;
use crate::completion::Failure;
use crate::job_state::JobState;
use crate::request::Request;

impl Engine {
    /// Queues a request for a worker.
    pub(super) fn enqueue(&mut self, request: Request, mut active: ActiveRequest) {
        self.schedule_poll(active.deadline.unwrap_or(u64::MAX));
        active.queued = self.shared.now();
        let state = Arc::<JobState>::default();
        active.state = Some(state.clone());
        let queue = self.work_queues.of(active.method);
        queue.waiting.push_back(Box::new(Job { request, state }));
        self.active.insert(active.id, active);
    }

    /// Passes waiting jobs to idle workers.
    pub(super) fn start_waiting(&mut self) {
        while let Some((id, is_started)) = self.work_queues.start_next(&self.shared) {
            if is_started {
                self.mark_started(id);
            } else if let Some(active) = self.active.remove(&id) {
                let text = "cannot start a worker thread: the system refuses it; try again later";
                self.fail(&active, &Failure::new(ErrorKind::Failed, text));
            }
        }
    }

    fn mark_started(&mut self, id: u64) {
        let now = self.shared.now();
        let mut time = self.shared.limits.slow_after;
        if let Some(active) = self.active.get_mut(&id) {
            active.begun = Some(now);
            if active.wants_progress {
                time = self.shared.limits.progress_interval;
            }
        }
        self.schedule_poll(now + time.as_millis() as u64);
    }
}
