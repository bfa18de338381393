//! The start of requests on workers.

use std::sync::Arc;

use floe_messages::ErrorKind;
use floe_transfer::Cancel;

use super::active_request::ActiveRequest;
use super::pool::Job;
use super::thread::Engine;
use super::work_queue::WorkKind;
use crate::completion::Failure;
use crate::progress::ProgressCell;
use crate::request::Request;

impl Engine {
    /// Queues a request for a worker.
    pub(super) fn enqueue(&mut self, request: Request, mut active: ActiveRequest) {
        self.schedule_poll(active.deadline.unwrap_or(u64::MAX));
        let cancel = Cancel::default();
        let progress = Arc::new(ProgressCell::new());
        active.work = Some((cancel.clone(), progress.clone()));
        let job = Box::new(Job {
            request,
            cancel,
            progress,
        });
        let method = active.method;
        self.active.insert(active.id, active);
        self.work_queues
            .of(WorkKind::of(method))
            .waiting
            .push_back(job);
    }

    /// Passes waiting jobs to idle workers.
    pub(super) fn start_waiting(&mut self) {
        if self.work_queues.are_empty() {
            return;
        }
        let shared = self.shared.clone();
        for kind in WorkKind::ALL {
            loop {
                let queue = self.work_queues.of(kind);
                if !queue.pool.has_room() {
                    break;
                }
                let Some(job) = queue.waiting.pop_front() else {
                    break;
                };
                let id = job.request.id;
                match queue.pool.begin(job, &shared) {
                    Ok(()) => self.mark_started(id),
                    Err(_) => self.fail_unstarted(id),
                }
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

    fn fail_unstarted(&mut self, id: u64) {
        if let Some(active) = self.active.remove(&id) {
            let text = "cannot start a worker thread: the system refuses it; try again later";
            self.fail(&active, &Failure::new(ErrorKind::Failed, text));
        }
    }
}
