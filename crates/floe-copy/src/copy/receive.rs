//! The work of one worker: it transfers one path from a source to the target, complete and
//! verified.
//!
//! 1. A path that is on this machine already is reused.
//! 2. Otherwise the target receives its NAR from its source, in several attempts if necessary.
//! 3. If the source fails or sends wrong bytes, the worker queries the other sources (failover).

use std::iter;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_hash::hash_pool::{Worker, WorkerTicket};
use floe_transfer::{
    CANCEL_POLL, Error, Event, IncomingNar, NarContext, PlannedPath, backoff_delay,
};

use super::fetch::{Job, Queue, QueueEnd};
use super::{ClosureCopy, failover};

/// The result of one path.
pub(crate) struct WorkerResult {
    pub(crate) path: StorePath,
    pub(crate) result: Result<ReceivedPath, Error>,
}

/// A path that the target has staged after all checks.
pub(crate) enum ReceivedPath {
    /// It was reused from this machine.
    Reused,
    /// This number of bytes was fetched for it.
    Fetched(u64),
}

/// The result of all attempts at one source. The inner error is a fault of the source; the outer
/// one ends the attempts at all sources.
type SourceResult = Result<Result<ReceivedPath, Error>, Error>;

/// Transfers paths from the queue until there are no more.
pub(crate) fn run_worker(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    place: WorkerTicket,
    results: &SyncSender<WorkerResult>,
) {
    let worker = place.start();
    let end = match worker.takes_smallest() {
        true => QueueEnd::Smallest,
        false => QueueEnd::Largest,
    };
    let mut receiver = PathReceiver {
        copy,
        queue,
        worker: &worker,
        scratch: vec![0; CHUNK_LEN],
    };
    while let Some(job) = queue.next(end) {
        let info = &job.item.narinfo.info;
        let (path, nar_size) = (&info.path, info.nar_size);
        copy.events.event(Event::Started { path, nar_size });
        let result = receiver.receive(job);
        copy.events.event(match &result {
            Ok(_) => Event::Staged { path },
            Err(_) => Event::TransferFailed { path },
        });
        // The receiver is gone if the copy has failed.
        let path = path.clone();
        let send = || results.send(WorkerResult { path, result }).is_ok();
        if !worker.yield_core_while(send) {
            return;
        }
    }
}

/// A worker with the things that it needs for each path.
struct PathReceiver<'a> {
    copy: &'a ClosureCopy<'a>,
    queue: &'a Queue<'a>,
    worker: &'a Worker,
    /// The memory of a decoded chunk.
    scratch: Vec<u8>,
}

impl PathReceiver<'_> {
    /// Receives a path from this machine, from its source, or else from any other source.
    fn receive(&mut self, job: Job<'_>) -> Result<ReceivedPath, Error> {
        let (copy, item) = (self.copy, job.item);
        if item.is_local() {
            if copy.target.reuse_local_copy(&mut self.incoming_nar(item))? {
                return Ok(ReceivedPath::Reused);
            }
            copy.check_cancelled()?;
        }
        let first = match self.receive_with_retries(job)? {
            Ok(received) => return Ok(received),
            Err(error) => error,
        };
        // First the same source again, because its narinfo may have changed since the copy began or
        // since the disk cache stored it, then all others.
        let others = (0..copy.sources.list.len()).filter(|source| *source != item.source);
        for source in iter::once(item.source).chain(others) {
            let query = || failover::query_alternative(copy, item, source);
            let Some(other) = self.worker.yield_core_while(query) else {
                continue;
            };
            copy.check_cancelled()?;
            let path = Some(&item.narinfo.info.path);
            copy.events.event(Event::Retrying {
                path,
                error: &first,
            });
            let job = Job {
                nar: Some(self.queue.open(&other)),
                item: &other,
                may_be_stale: false,
            };
            if let Ok(received) = self.receive_with_retries(job)? {
                return Ok(received);
            }
        }
        Err(first.about_nar_of(&item.narinfo.info.path))
    }

    fn receive_with_retries(&mut self, job: Job<'_>) -> SourceResult {
        let (copy, queue, item) = (self.copy, self.queue, job.item);
        let mut may_be_stale = job.may_be_stale;
        let mut stream = job.nar.unwrap_or_else(|| queue.open(item));
        let mut attempt = 1;
        loop {
            let mut nar = self.incoming_nar(item);
            let result = stream.and_then(|stream| {
                let source = &copy.sources.list[item.source];
                nar.set_stream(stream, source.nar_url(&item.narinfo));
                copy.target.receive(&mut nar)
            });
            let Err(error) = result else {
                return Ok(Ok(ReceivedPath::Fetched(nar.fetched_bytes())));
            };
            // The next attempt, or the next source, sends the NAR from its beginning.
            nar.reset_progress();
            if !error.is_transient() || attempt >= copy.sources.attempts {
                return match failover::is_source_fault(&error) {
                    true => Ok(Err(error)),
                    false => Err(error),
                };
            }
            let path = Some(&item.narinfo.info.path);
            copy.events.event(Event::Retrying {
                path,
                error: &error,
            });
            // A stale prefetch gets one free attempt. A response with Retry-After shows that the
            // connection was not stale.
            let is_free = std::mem::take(&mut may_be_stale) && error.retry_after().is_none();
            if !is_free {
                let time = backoff_delay(attempt, &error);
                let wait = || self.wait_before_retry(item, time);
                self.worker.yield_core_while(wait)?;
                attempt += 1;
            }
            copy.check_cancelled()?;
            stream = queue.open(item);
        }
    }

    /// Waits before another attempt. Ends early if the copy is cancelled or does not need the path
    /// any more.
    fn wait_before_retry(&self, item: &PlannedPath, time: Duration) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            self.copy.check_cancelled()?;
            if !self.queue.is_needed(&item.narinfo.info.path) {
                return Err(Error::Cancelled);
            }
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(CANCEL_POLL));
        }
    }

    fn incoming_nar<'s>(&'s mut self, item: &'s PlannedPath) -> IncomingNar<'s> {
        let context = NarContext {
            options: self.copy.options,
            events: self.copy.events,
            worker: self.worker,
            decoder_budget: &self.queue.decoder_budget,
        };
        IncomingNar::new(context, item, &mut self.scratch)
    }
}

/// The length of a decoded chunk, in bytes. It stays in the second-level cache between decoding,
/// hashing and writing.
const CHUNK_LEN: usize = 256 * 1024;
