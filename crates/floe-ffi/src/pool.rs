//! Threads that do the work of requests, one request at a time each.
//!
//! The engine thread keeps what waits and gives a job only to a worker that is idle; so a job that
//! was not begun can be taken back by the engine alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use floe_engine::Cancel;
use floe_messages::ErrorKind;

use crate::completion::{Failure, JobOutcome};
use crate::progress::ProgressCell;
use crate::request::Request;

/// One request, ready to be done.
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) cancel: Cancel,
    pub(crate) progress: Arc<ProgressCell>,
}

/// What a worker hands back.
pub(crate) struct JobResult {
    pub(crate) request: u64,
    pub(crate) outcome: JobOutcome,
}

/// What the threads of a pool call.
pub(crate) trait JobHandler: Send + Sync + 'static {
    /// Does a job.
    fn handle(&self, job: Job) -> JobOutcome;

    /// Takes what came of it.
    fn return_result(&self, finished: JobResult);
}

/// Some threads with the same kind of work.
pub(crate) struct Pool {
    name: &'static str,
    most: usize,
    idle: usize,
    /// The first idle worker takes the next job.
    jobs: Sender<Box<Job>>,
    taken: Arc<Mutex<Receiver<Box<Job>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool without threads; they begin when there is work for them.
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

    /// Whether a job would be begun at once.
    pub(crate) fn has_room(&self) -> bool {
        self.idle > 0 || self.threads.len() < self.most
    }

    /// Gives a job to a worker, or back if the system refuses a thread and there is none at all.
    pub(crate) fn begin(
        &mut self,
        job: Box<Job>,
        handler: &Arc<impl JobHandler>,
    ) -> Result<(), Box<Job>> {
        match self.idle {
            0 => match self.spawn(handler.clone()) {
                Ok(thread) => self.threads.push(thread),
                // The workers that there are do it later.
                Err(_) if !self.threads.is_empty() => {}
                Err(_) => return Err(job),
            },
            _ => self.idle -= 1,
        }
        self.jobs.send(job).map_err(|unsent| unsent.0)
    }

    /// A worker has handed back what it did, and is idle.
    pub(crate) fn release(&mut self) {
        self.idle += 1;
    }

    fn spawn(&self, handler: Arc<impl JobHandler>) -> std::io::Result<JoinHandle<()>> {
        let jobs = self.taken.clone();
        let name = format!("floe-{}-{}", self.name, self.threads.len());
        Builder::new().name(name).spawn(move || {
            loop {
                let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                match next {
                    Ok(job) => run(*job, &*handler),
                    Err(_) => return,
                }
            }
        })
    }

    /// Waits for all threads. Their work has ended already.
    pub(crate) fn end(self) {
        drop(self.jobs);
        for thread in self.threads {
            // A worker catches the panics of its work; nothing else in it can panic.
            let _: std::thread::Result<()> = thread.join();
        }
    }
}

fn run(job: Job, handler: &impl JobHandler) {
    let id = job.request.id;
    let outcome = guarded(|| handler.handle(job));
    handler.return_result(JobResult {
        request: id,
        outcome,
    });
}

/// A panic ends its request, and neither the worker nor the host.
fn guarded(work: impl FnOnce() -> JobOutcome) -> JobOutcome {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        JobOutcome::Failed(Failure::new(
            ErrorKind::Internal,
            format!(
                "a fault in libfloe ended this request: {}",
                text.unwrap_or_default()
            ),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_its_request_with_its_words() {
        let number = 7;
        let works: [fn(i32) -> JobOutcome; 2] = [|_| panic!("as text"), |n| panic!("with {n}")];
        for (work, words) in works.into_iter().zip(["as text", "with 7"]) {
            let JobOutcome::Failed(failure) = guarded(|| work(number)) else {
                panic!("{words}: no failure");
            };
            assert_eq!(failure.kind, ErrorKind::Internal);
            assert!(failure.message.contains(words), "{}", failure.message);
        }
    }
}
