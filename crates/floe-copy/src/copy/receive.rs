//! The work of one worker: it transfers one path from a source to the target, complete and
//! verified.
//!
//! 1. A path that is on this machine already is reused.
//! 2. Otherwise the target receives its NAR from its source, in several attempts if necessary.
//! 3. If the source fails or sends wrong bytes, the worker queries the other sources (failover).

use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_hash::hash_pool::{Worker, WorkerTicket};
use floe_transfer::{
    Body, CANCEL_POLL, Error, Event, IncomingNar, NarContext, NarStream, PlannedPath, backoff_delay,
};

use super::fetch::{Job, Queue, QueueEnd};
use super::{ClosureCopy, failover};

/// The result of one path.
pub(crate) struct WorkerResult {
    pub(crate) path: StorePath,
    pub(crate) result: Result<ReceivedPath, Error>,
}

/// A path that the target has staged after all checks.
pub(crate) struct ReceivedPath {
    /// The number of bytes that were fetched for it.
    pub(crate) fetched: u64,
    /// Whether it was reused from this machine.
    pub(crate) is_reused: bool,
}

/// The failure of the last attempt at one source.
struct ReceiveFailure {
    error: Box<Error>,
    is_source_fault: bool,
}

impl From<Error> for ReceiveFailure {
    /// A cancellation, which ends the attempts at all sources.
    fn from(error: Error) -> ReceiveFailure {
        ReceiveFailure {
            error: Box::new(error),
            is_source_fault: false,
        }
    }
}

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
    let mut scratch = vec![0; CHUNK_LEN];
    while let Some(job) = queue.next(end) {
        let item = job.item;
        let path = item.narinfo.info.path.clone();
        let nar_size = item.narinfo.info.nar_size;
        copy.events.event(Event::Started {
            path: &path,
            nar_size,
        });
        let result = receive_with_failover(copy, queue, job, (&worker, &mut scratch));
        copy.events.event(match &result {
            Ok(_) => Event::Staged { path: &path },
            Err(_) => Event::TransferFailed { path: &path },
        });
        // The receiver is gone if the copy has failed.
        let is_needed =
            worker.yield_core_while(|| results.send(WorkerResult { path, result }).is_ok());
        if !is_needed {
            return;
        }
    }
}

/// Receives a path from this machine, from its source, or else from any other source.
fn receive_with_failover(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    job: Job<'_>,
    (worker, scratch): (&Worker, &mut [u8]),
) -> Result<ReceivedPath, Error> {
    let item = job.item;
    if item.is_local() {
        let context = nar_context(copy, queue, worker);
        let mut nar = IncomingNar::new(context, item, scratch);
        if copy.target.reuse_local_copy(&mut nar)? {
            return Ok(ReceivedPath {
                fetched: 0,
                is_reused: true,
            });
        }
        copy.check_cancelled()?;
    }
    let first = match receive_with_retries(copy, queue, job, (worker, &mut *scratch)) {
        Err(failure) if failure.is_source_fault => *failure.error,
        result => return result.map_err(|failure| *failure.error),
    };
    let path = &item.narinfo.info.path;
    for source in failover::candidates(copy, item) {
        let found = worker.yield_core_while(|| failover::query_alternative(copy, item, source));
        let Some(other) = found else { continue };
        copy.check_cancelled()?;
        copy.events.event(Event::Retrying {
            path: Some(path),
            error: &first,
        });
        let job = Job {
            nar: Some(queue.open(&other)),
            item: &other,
            may_be_stale: false,
        };
        match receive_with_retries(copy, queue, job, (worker, &mut *scratch)) {
            Err(failure) if failure.is_source_fault => {}
            result => return result.map_err(|failure| *failure.error),
        }
    }
    Err(first)
}

fn receive_with_retries(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    job: Job<'_>,
    (worker, scratch): (&Worker, &mut [u8]),
) -> Result<ReceivedPath, ReceiveFailure> {
    let Job {
        item,
        nar,
        mut may_be_stale,
    } = job;
    let mut stream = nar.unwrap_or_else(|| queue.open(item));
    let mut attempt = 1;
    loop {
        let context = nar_context(copy, queue, worker);
        let mut nar = IncomingNar::new(context, item, scratch);
        let source_file = source_file(&stream);
        let result = stream.and_then(|stream| {
            nar.set_stream(stream, copy.source_of(item).nar_url(&item.narinfo));
            copy.target.receive(&mut nar)
        });
        match result {
            Ok(()) => {
                return Ok(ReceivedPath {
                    fetched: nar.fetched_bytes(),
                    is_reused: false,
                });
            }
            Err(error) if error.is_transient() && attempt < copy.sources.attempts => {
                nar.reset_progress();
                copy.events.event(Event::Retrying {
                    path: Some(&item.narinfo.info.path),
                    error: &error,
                });
                // A stale prefetch gets one free attempt. A response with Retry-After shows that
                // the connection was not stale.
                let is_free = std::mem::take(&mut may_be_stale) && error.retry_after().is_none();
                if !is_free {
                    let time = backoff_delay(attempt, &error);
                    worker.yield_core_while(|| wait_before_retry(copy, queue, item, time))?;
                    attempt += 1;
                }
                copy.check_cancelled()?;
                stream = queue.open(item);
            }
            Err(error) => {
                // The next source sends the NAR from its beginning.
                nar.reset_progress();
                let is_source_fault = failover::is_source_fault(&error, source_file.as_deref());
                return Err(ReceiveFailure {
                    error: Box::new(error),
                    is_source_fault,
                });
            }
        }
    }
}

/// Returns the file that the source opened or failed to open.
fn source_file(stream: &Result<NarStream, Error>) -> Option<PathBuf> {
    match stream {
        Ok(NarStream::Body(Body::File { path, .. })) | Err(Error::File { path, .. }) => {
            Some(path.clone())
        }
        _ => None,
    }
}

fn nar_context<'a>(
    copy: &'a ClosureCopy<'_>,
    queue: &'a Queue<'_>,
    worker: &'a Worker,
) -> NarContext<'a> {
    NarContext {
        options: copy.options,
        events: copy.events,
        worker,
        decoder_budget: queue.decoder_budget(),
    }
}

/// Waits before another attempt. Ends early if the copy is cancelled or does not need the path any
/// more.
fn wait_before_retry(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    item: &PlannedPath,
    time: Duration,
) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        copy.check_cancelled()?;
        if !queue.is_needed(&item.narinfo.info.path) {
            return Err(Error::Cancelled);
        }
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(CANCEL_POLL));
    }
}

/// The length of a decoded chunk, in bytes. It stays in the second-level cache between decoding,
/// hashing and writing.
const CHUNK_LEN: usize = 256 * 1024;
