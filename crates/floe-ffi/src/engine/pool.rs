//! Worker threads, each of which handles one request at a time.
//!
//! The engine thread keeps the waiting jobs and passes a job only to an idle worker. Only the
//! engine thread can therefore cancel a job that was not started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use floe_messages::ErrorKind;
use floe_transfer::Cancel;

use super::Shared;
use crate::completion::{Failure, JobOutcome};
use crate::locks::lock;
use crate::progress::ProgressCell;
use crate::request::Request;

/// A request that is ready to be handled.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) cancel: Cancel,
    pub(crate) progress: Arc<ProgressCell>,
}

/// The result of a job.
pub(super) struct JobResult {
    pub(crate) request: u64,
    pub(crate) outcome: JobOutcome,
}

/// A pool of workers for one kind of work.
pub(super) struct Pool {
    name: &'static str,
    most: usize,
    idle: usize,
    /// The first idle worker takes the next job.
    jobs: Sender<Box<Job>>,
    taken: Arc<Mutex<Receiver<Box<Job>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Creates a pool without threads. They start when there is work for them.
    pub(crate) fn new(name: &'static str, most: usize) -> Pool {
        let (jobs, taken) = channel();
        Pool {
            name,
            most,
            idle: 0,
            jobs,
            taken: Arc::new(Mutex::new(taken)),
            threads: Vec::new(),
        }
    }

    /// Returns whether a job would start at once.
    pub(crate) fn has_room(&self) -> bool {
        self.idle > 0 || self.threads.len() < self.most
    }

    /// Passes a job to a worker. Returns the job if the pool has no thread and the system refuses
    /// one.
    pub(crate) fn begin(&mut self, job: Box<Job>, shared: &Arc<Shared>) -> Result<(), Box<Job>> {
        match self.idle {
            0 => match self.spawn(shared.clone()) {
                Ok(thread) => self.threads.push(thread),
                // One of the existing workers takes the job later.
                Err(_) if !self.threads.is_empty() => {}
                Err(_) => return Err(job),
            },
            _ => self.idle -= 1,
        }
        self.jobs.send(job).map_err(|unsent| unsent.0)
    }

    /// Marks a worker as idle after it has returned a result.
    pub(crate) fn release(&mut self) {
        self.idle += 1;
    }

    fn spawn(&self, shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
        let jobs = self.taken.clone();
        let name = format!("floe-{}-{}", self.name, self.threads.len());
        Builder::new().name(name).spawn(move || {
            shared.enter();
            loop {
                // The lock is released before the job runs.
                let next = lock(&jobs).recv();
                let Ok(job) = next else {
                    return;
                };
                let request = job.request.id;
                let outcome = guarded(|| (shared.handler)(*job, &shared));
                let finished = JobResult { request, outcome };
                shared.post(|inbox| inbox.finished.push(finished));
            }
        })
    }

    /// Joins all threads. Their jobs must have ended.
    pub(crate) fn end(self) {
        drop(self.jobs);
        for thread in self.threads {
            // A worker catches the panics of handlers, and nothing else in it can panic.
            let _: std::thread::Result<()> = thread.join();
        }
    }
}

/// Turns a panic into a failure of the request, so that the worker and the host continue.
fn guarded(work: impl FnOnce() -> JobOutcome) -> JobOutcome {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        JobOutcome::Failed(Failure::new(
            ErrorKind::Internal,
            format!(
                "a bug in libfloe ended this request: {}",
                text.unwrap_or_default()
            ),
        ))
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
            let JobOutcome::Failed(failure) = guarded(|| work(number)) else {
                panic!("{text}: no failure");
            };
            assert_eq!(failure.kind, ErrorKind::Internal);
            assert!(failure.message.contains(text), "{}", failure.message);
        }
    }
}
