//! The work queues: requests that wait for a worker, and the workers, each of which handles one
//! request at a time.
//!
//! The engine thread keeps the waiting jobs and passes a job only to an idle worker. Only the
//! engine thread can therefore cancel a job that was not started.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use floe_messages::{ErrorKind, Method};
use parking_lot::Mutex;

use super::Shared;
use crate::completion::{Failure, JobError, JobOutcome};
use crate::job_state::JobState;
use crate::limits::Limits;
use crate::request::Request;

/// A request that is ready to be handled.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) state: Arc<JobState>,
}

/// The work queues of an engine, by the kind of the work.
pub(super) struct WorkQueues {
    queries: WorkQueue,
    copies: WorkQueue,
}

/// The waiting jobs of one kind, and their workers.
pub(super) struct WorkQueue {
    pub(super) waiting: VecDeque<Box<Job>>,
    name: &'static str,
    most: usize,
    /// The number of workers without a job.
    pub(super) idle: usize,
    /// The first idle worker takes the next job.
    jobs: Sender<Box<Job>>,
    taken: Arc<Mutex<Receiver<Box<Job>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkQueues {
    /// Creates the queues without threads. They start when there is work for them.
    pub(super) fn new(limits: &Limits) -> WorkQueues {
        WorkQueues {
            queries: WorkQueue::new("query", limits.query_workers),
            copies: WorkQueue::new("copy", limits.copy_workers),
        }
    }

    /// Returns the queue of a method.
    pub(super) fn of(&mut self, method: Method) -> &mut WorkQueue {
        match method {
            Method::Resolve
            | Method::Install
            | Method::Copy
            | Method::Verify
            | Method::Nar
            | Method::Serve
            | Method::Stop => &mut self.copies,
            _ => &mut self.queries,
        }
    }

    /// Passes the next waiting job to an idle worker. Returns its request, and whether the job has
    /// started: the system may refuse a thread. Returns `None` if no job waits or no worker is
    /// free.
    pub(super) fn start_next(&mut self, shared: &Arc<Shared>) -> Option<(u64, bool)> {
        let mut started = self.queries.start_next(shared);
        if started.is_none() {
            started = self.copies.start_next(shared);
        }
        started
    }

    /// Joins all threads. Their jobs must have ended.
    pub(super) fn end(self) {
        for queue in [self.queries, self.copies] {
            drop(queue.jobs);
            for thread in queue.threads {
                // A worker catches the panics of handlers, and nothing else in it can panic.
                let _: std::thread::Result<()> = thread.join();
            }
        }
    }
}

impl WorkQueue {
    fn new(name: &'static str, most: usize) -> WorkQueue {
        let (jobs, taken) = channel();
        WorkQueue {
            waiting: VecDeque::new(),
            name,
            most,
            idle: 0,
            jobs,
            taken: Arc::new(Mutex::new(taken)),
            threads: Vec::new(),
        }
    }

    /// See [`WorkQueues::start_next`].
    fn start_next(&mut self, shared: &Arc<Shared>) -> Option<(u64, bool)> {
        if self.idle == 0 && self.threads.len() >= self.most {
            return None;
        }
        let job = self.waiting.pop_front()?;
        let id = job.request.id;
        match self.idle {
            0 => match self.spawn(shared.clone()) {
                Ok(thread) => self.threads.push(thread),
                // One of the existing workers takes the job later.
                Err(_) if !self.threads.is_empty() => {}
                Err(_) => return Some((id, false)),
            },
            _ => self.idle -= 1,
        }
        Some((id, self.jobs.send(job).is_ok()))
    }

    fn spawn(&self, shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
        let jobs = self.taken.clone();
        let name = format!("floe-{}-{}", self.name, self.threads.len());
        Builder::new().name(name).spawn(move || {
            shared.enter(false);
            loop {
                // The lock is released before the job runs.
                let next = jobs.lock().recv();
                let Ok(job) = next else {
                    return;
                };
                let request = job.request.id;
                let outcome = guarded(|| (shared.handler)(*job, &shared));
                shared.post(|inbox| inbox.finished.push((request, outcome)));
            }
        })
    }
}

/// Turns a panic into a failure of the request, so that the worker and the host continue.
fn guarded(work: impl FnOnce() -> JobOutcome) -> JobOutcome {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_default();
        let text = format!("a bug in libfloe ended this request: {text}");
        Err(JobError::Failed(Failure::new(ErrorKind::Internal, text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_with_panic_returns_its_message() {
        let number = 7;
        let works: [fn(i32) -> JobOutcome; 2] = [|_| panic!("as text"), |n| panic!("with {n}")];
        for (work, text) in works.into_iter().zip(["as text", "with 7"]) {
            let Err(JobError::Failed(failure)) = guarded(|| work(number)) else {
                panic!("{text}: no failure");
            };
            assert_eq!(failure.kind, ErrorKind::Internal);
            assert!(failure.message.contains(text), "{}", failure.message);
        }
    }
}
