//! Receives one path, complete and verified, from the first source that can send it.
//!
//! 1. A path that is on this machine already is reused.
//! 2. Otherwise the target receives its NAR from its source.
//! 3. If the source fails, is slow or sends wrong bytes, the worker queries the other sources at
//!    once (failover). A source that fails three times in a row is *avoided*: the copy uses it only
//!    for paths that no other source can send.
//! 4. If no other source can send the path either, or if there is none, the source gets as many
//!    attempts as the user allows.

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use floe_hash::hash_pool::Worker;
use floe_transfer::{
    CANCEL_POLL, Error, ErrorKind, Event, IncomingNar, NarContext, NarStream, NeededPaths as _,
    PathSpec, PlannedPath,
};

use super::ClosureCopy;
use super::fetch::{Job, Queue};
use super::trust::check_trust;

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

/// A worker with the things that it needs for each path.
pub(super) struct PathReceiver<'a> {
    copy: &'a ClosureCopy<'a>,
    queue: &'a Queue<'a>,
    worker: &'a Worker,
    /// The memory of a decoded chunk.
    scratch: Vec<u8>,
}

impl<'a> PathReceiver<'a> {
    pub(super) fn new(
        copy: &'a ClosureCopy<'a>,
        queue: &'a Queue<'a>,
        worker: &'a Worker,
    ) -> PathReceiver<'a> {
        PathReceiver {
            copy,
            queue,
            worker,
            scratch: vec![0; CHUNK_LEN],
        }
    }

    /// Receives a path from this machine, from its source, or else from any other source.
    pub(super) fn receive(&mut self, mut job: Job) -> Result<ReceivedPath, Error> {
        let (copy, planned) = (self.copy, job.planned.clone());
        if planned.is_local() {
            if let Some(target) = copy.target.as_resumable()
                && target.reuse_local_copy(&mut self.incoming_nar(&planned))?
            {
                return Ok(ReceivedPath::Reused);
            }
            copy.check_cancelled()?;
        }
        let mut first = None;
        if copy.sources.have_alternative_to(planned.source) {
            match self.receive_once_from_any(job)? {
                Ok(received) => return Ok(received),
                Err(error) => first = error,
            }
            job = self.job_for_all_attempts(planned.clone());
        }
        let first = match (self.receive_with_retries(job)?, first) {
            (Ok(received), _) => return Ok(received),
            (Err(_), Some(error)) | (Err(error), None) => error,
        };
        // First the same source again, because its narinfo may have changed since the copy began or
        // since the disk cache stored it, then all others.
        for source in iter::once(planned.source).chain(self.others(&planned)) {
            let Some(other) = self.query_alternative(&planned, source, None)? else {
                continue;
            };
            self.report_retry(&planned, &first);
            let job = self.job_for_all_attempts(Arc::new(other));
            if let Ok(received) = self.receive_with_retries(job)? {
                return Ok(received);
            }
        }
        Err(first.about_nar_of(&planned.narinfo.info.path))
    }

    /// Gives each source one attempt, that of the plan first. A source that is slow or fails must
    /// not delay a path that another one has. The inner error is that of the first attempt.
    fn receive_once_from_any(
        &mut self,
        job: Job,
    ) -> Result<Result<ReceivedPath, Option<Error>>, Error> {
        let (copy, planned) = (self.copy, job.planned.clone());
        let mut first = None;
        if !copy.sources.is_avoided(planned.source) {
            match self.receive_once(job)? {
                Ok(received) => return Ok(Ok(received)),
                Err(error) => first = Some(error),
            }
        }
        for source in self.others(&planned) {
            if copy.sources.is_avoided(source) {
                continue;
            }
            let Some(other) = self.query_alternative(&planned, source, Some(QUERY_TIMEOUT))? else {
                continue;
            };
            if let Some(error) = &first {
                self.report_retry(&planned, error);
            }
            let job = Job {
                nar: Some(self.queue.open(&other)),
                planned: Arc::new(other),
                may_be_stale: false,
            };
            match self.receive_once(job)? {
                Ok(received) => return Ok(Ok(received)),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Ok(Err(first))
    }

    fn receive_once(&mut self, job: Job) -> SourceResult {
        let (sources, planned) = (self.copy.sources, &*job.planned);
        let mut may_be_stale = job.may_be_stale;
        let mut stream = job.nar.unwrap_or_else(|| self.queue.open(planned));
        loop {
            match self.receive_stream(planned, stream) {
                Ok(received) => {
                    sources.record_success(planned.source);
                    return Ok(Ok(received));
                }
                Err(error) if is_stale(&mut may_be_stale, &error) => {
                    stream = self.queue.open(planned);
                }
                Err(error) if !is_source_fault(&error) => return Err(error),
                Err(error) => {
                    if sources.record_fault(planned.source) {
                        let (source, error) = (&sources.list[planned.source].name(), &error);
                        self.copy
                            .events
                            .event(Event::AvoidedSource { source, error });
                    }
                    return Ok(Err(error));
                }
            }
        }
    }

    fn receive_with_retries(&mut self, job: Job) -> SourceResult {
        let (copy, queue, planned) = (self.copy, self.queue, &*job.planned);
        let mut may_be_stale = job.may_be_stale;
        let retry = copy.sources.retry_policy(planned.source);
        let mut stream = job
            .nar
            .unwrap_or_else(|| queue.open_for_all_attempts(planned));
        let mut attempt = 1;
        loop {
            let error = match self.receive_stream(planned, stream) {
                Ok(received) => return Ok(Ok(received)),
                Err(error) => error,
            };
            if !error.is_transient() || attempt >= retry.attempts {
                return if is_source_fault(&error) {
                    Ok(Err(error))
                } else {
                    Err(error)
                };
            }
            self.report_retry(planned, &error);
            if !is_stale(&mut may_be_stale, &error) {
                let time = retry.pause(attempt, &error);
                let wait = || self.wait_before_retry(planned, time);
                self.worker.yield_core_while(wait)?;
                attempt += 1;
            }
            copy.check_cancelled()?;
            stream = queue.open_for_all_attempts(planned);
        }
    }

    /// Receives a path from one stream.
    fn receive_stream(
        &mut self,
        planned: &PlannedPath,
        stream: Result<NarStream, Error>,
    ) -> Result<ReceivedPath, Error> {
        let copy = self.copy;
        let mut nar = self.incoming_nar(planned);
        let result = stream.and_then(|stream| {
            let source = &copy.sources.list[planned.source];
            nar.set_stream(stream, source.nar_url(&planned.narinfo));
            copy.target.receive(&mut nar)
        });
        match result {
            Ok(()) => Ok(ReceivedPath::Fetched(nar.fetched_bytes())),
            Err(error) => {
                // The next attempt, or the next source, sends the NAR from its beginning.
                nar.reset_progress();
                Err(error)
            }
        }
    }

    fn job_for_all_attempts(&self, planned: Arc<PlannedPath>) -> Job {
        Job {
            nar: Some(self.queue.open_for_all_attempts(&planned)),
            planned,
            may_be_stale: false,
        }
    }

    fn others(&self, planned: &PlannedPath) -> impl Iterator<Item = usize> + use<> {
        let source = planned.source;
        (0..self.copy.sources.list.len()).filter(move |other| *other != source)
    }

    fn query_alternative(
        &self,
        planned: &PlannedPath,
        source: usize,
        timeout: Option<Duration>,
    ) -> Result<Option<PlannedPath>, Error> {
        let query = || query_alternative(self.copy, planned, source, timeout);
        let other = self.worker.yield_core_while(query);
        self.copy.check_cancelled()?;
        Ok(other)
    }

    fn report_retry(&self, planned: &PlannedPath, error: &Error) {
        let path = Some(&planned.narinfo.info.path);
        self.copy.events.event(Event::Retrying { path, error });
    }

    /// Waits before another attempt. Ends early if the copy is cancelled or does not need the path
    /// any more.
    fn wait_before_retry(&self, planned: &PlannedPath, time: Duration) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            self.copy.check_cancelled()?;
            if !self.queue.is_needed(&planned.narinfo.info.path) {
                return Err(Error::NotNeeded);
            }
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(CANCEL_POLL));
        }
    }

    fn incoming_nar<'s>(&'s mut self, planned: &'s PlannedPath) -> IncomingNar<'s> {
        let context = NarContext {
            options: self.copy.options,
            events: self.copy.events,
            worker: self.worker,
            decoder_budget: &self.queue.decoder_budget,
            needed: self.queue,
        };
        IncomingNar::new(context, planned, &mut self.scratch)
    }
}

/// Whether a prefetched body failed only because it waited for long, so that another attempt is
/// free. A response with Retry-After shows that the connection was not stale.
fn is_stale(may_be_stale: &mut bool, error: &Error) -> bool {
    std::mem::take(may_be_stale) && error.is_transient() && error.retry_after().is_none()
}

/// Whether the source caused a failure, so that another source may have the path.
fn is_source_fault(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Network | ErrorKind::Untrusted) && !error.ends_copy()
}

/// Returns the path as a source offers it, if it passes the trust check and is not the narinfo
/// that has failed. Its references must be those of the plan, because the plan already contains
/// what they need and the commit waits for them.
fn query_alternative(
    copy: &ClosureCopy<'_>,
    planned: &PlannedPath,
    source: usize,
    timeout: Option<Duration>,
) -> Option<PlannedPath> {
    let path = &planned.narinfo.info.path;
    let candidate = &copy.sources.list[source];
    if !candidate.is_for(copy.target.store_dir()) {
        return None;
    }
    // The user sees the error of the first source, so the cause here is dropped.
    let spec = PathSpec::Path(path.clone());
    let narinfo = candidate.query_path_info_within(timeout, &spec, &copy.options.cancel);
    let narinfo = narinfo.ok().flatten()?;
    let has_failed = source == planned.source && narinfo == planned.narinfo;
    let has_same_references = narinfo.info.references == planned.narinfo.info.references;
    if has_failed || !has_same_references {
        return None;
    }
    let (planned, _) = check_trust(copy, source, &spec, narinfo).ok()?;
    Some(planned)
}

/// How long a source may take to reply whether it has a path that another source failed to send.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The length of a decoded chunk, in bytes. It stays in the second-level cache between decoding,
/// hashing and writing.
const CHUNK_LEN: usize = 256 * 1024;
