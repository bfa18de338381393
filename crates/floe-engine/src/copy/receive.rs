//! The work of one worker: a path from its source into the target's hands, whole and right.
//!
//! 1. read a chunk of the body, hashing it as a file;
//! 2. decode it into a chunk of the NAR;
//! 3. hash that, and write it where it goes;
//! 4. at the end, read the body to *its* end, and compare sizes and hashes;
//! 5. where a source fails or lies, begin again with another one that has the path.

use std::io::{self, BufRead as _, Read as _};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{Compression, Hash, HashAlgorithm, StorePath};
use floe_hash::hash_pool::{Worker, WorkerTicket};
use floe_store::tree::{TemporaryTree, TreeWriter};
use floe_store::{StagedPath, StoreError, StoreWriter};

use super::fetch::{Job, Queue, QueueEnd};
use super::nar_verifier::{NarVerifier, check_file};
use super::{ClosureCopy, PlannedPath, StagedObject, TargetKind, failover, nar_file};
use crate::cancel::CANCEL_POLL;
use crate::codec::{self, DecoderBudget};
use crate::error::Error;
use crate::events::Event;
use crate::nar_stream::{Body, BodyReader, NarStream, WriteChunk};
use crate::retry::backoff_delay;

/// What a worker says of a path: what became of it.
pub(crate) struct WorkerResult {
    pub(crate) path: StorePath,
    pub(crate) result: Result<ReceivedPath, Error>,
}

/// A path that has arrived, whole and right.
pub(crate) struct ReceivedPath {
    pub(crate) staged: StagedObject,
    /// How many bytes were fetched for it.
    pub(crate) fetched: u64,
    /// It lay on this machine.
    pub(crate) is_reused: bool,
}

/// Where the bytes of a NAR go.
pub(crate) trait NarSink {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error>;
}

impl NarSink for TreeWriter {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        Ok(TreeWriter::write(self, nar)?)
    }
}

/// Takes paths from the queue until there are no more.
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
        // Nobody takes results any more when the move has failed as a whole.
        let is_needed =
            worker.yield_core_while(|| results.send(WorkerResult { path, result }).is_ok());
        if !is_needed {
            return;
        }
    }
}

/// Receives a path from what lies on this machine, from its source, or else from any other
/// that has it.
fn receive_with_failover(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    job: Job<'_>,
    (worker, scratch): (&Worker, &mut [u8]),
) -> Result<ReceivedPath, Error> {
    let item = job.item;
    if item.is_local() {
        let mut transfer = Transfer::new(copy, queue, item, (worker, &mut *scratch));
        if let Some(staged) = transfer.reuse_local_copy()? {
            return Ok(ReceivedPath {
                staged,
                fetched: 0,
                is_reused: true,
            });
        }
        copy.check_cancelled()?;
    }
    let first = match receive_with_retries(copy, queue, job, (worker, &mut *scratch)) {
        Err(error) if failover::is_source_fault(&error) => error,
        result => return result,
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
            Err(error) if failover::is_source_fault(&error) => {}
            result => return result,
        }
    }
    Err(first)
}

fn receive_with_retries(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    job: Job<'_>,
    (worker, scratch): (&Worker, &mut [u8]),
) -> Result<ReceivedPath, Error> {
    let Job {
        item,
        nar,
        mut may_be_stale,
    } = job;
    let mut nar = nar.unwrap_or_else(|| queue.open(item));
    let mut attempt = 1;
    loop {
        let mut transfer = Transfer::new(copy, queue, item, (worker, &mut *scratch));
        let result = nar.and_then(|nar| transfer.receive_nar(nar));
        match result {
            Ok(staged) => {
                return Ok(ReceivedPath {
                    staged,
                    fetched: transfer.fetched,
                    is_reused: false,
                });
            }
            Err(error) if error.is_transient() && attempt < copy.sources.attempts => {
                transfer.reset_progress();
                copy.events.event(Event::Retrying {
                    path: Some(&item.narinfo.info.path),
                    error: &error,
                });
                // A server that says when to come back has not lost patience.
                let is_free = std::mem::take(&mut may_be_stale) && !error.has_retry_after();
                if !is_free {
                    let time = backoff_delay(attempt, &error);
                    worker.yield_core_while(|| wait_before_retry(copy, queue, item, time))?;
                    attempt += 1;
                }
                copy.check_cancelled()?;
                nar = queue.open(item);
            }
            Err(error) => {
                // Whoever tries elsewhere begins again.
                transfer.reset_progress();
                return Err(error);
            }
        }
    }
}

/// Waits before another attempt, unless there will be none.
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

/// One attempt at one path.
pub(crate) struct Transfer<'a> {
    pub(super) copy: &'a ClosureCopy<'a>,
    pub(super) item: &'a PlannedPath,
    worker: &'a Worker,
    decoder_budget: &'a DecoderBudget,
    scratch: &'a mut [u8],
    /// How many bytes of the NAR the reporter knows of.
    reported_bytes: i64,
    fetched: u64,
}

impl<'a> Transfer<'a> {
    fn new(
        copy: &'a ClosureCopy<'a>,
        queue: &'a Queue<'a>,
        item: &'a PlannedPath,
        (worker, scratch): (&'a Worker, &'a mut [u8]),
    ) -> Transfer<'a> {
        Transfer {
            copy,
            item,
            worker,
            decoder_budget: queue.decoder_budget(),
            scratch,
            reported_bytes: 0,
            fetched: 0,
        }
    }

    fn receive_nar(&mut self, nar: NarStream) -> Result<StagedObject, Error> {
        match &self.copy.target.0 {
            TargetKind::Store(store) => {
                let mut writer = self.tree_writer(store)?;
                self.receive(nar, &mut writer)?;
                Ok(self.staged(writer.finish()?))
            }
            // Nothing is transferred on a dry run.
            TargetKind::ReadOnly(_) => Err(Error::Cancelled),
            TargetKind::Cache(cache) => {
                let narinfo = &self.item.narinfo;
                let worker = self.worker;
                nar_file::write_nar_file(cache, narinfo, worker, |sink| self.receive(nar, sink))
                    .map(StagedObject::Nar)
            }
        }
    }

    /// What writes the path's tree into a store, as the options have it.
    pub(super) fn tree_writer(&self, store: &StoreWriter) -> Result<TreeWriter, Error> {
        let path = &self.item.narinfo.info.path;
        Ok(match self.copy.options.optimise {
            true => store.optimising_tree_writer(path)?,
            false => store.tree_writer(path),
        })
    }

    /// A tree whose every byte was right.
    pub(super) fn staged(&self, tree: TemporaryTree) -> StagedObject {
        let info = self.item.narinfo.info.clone();
        for link in tree.damaged_links() {
            let path = &info.path;
            let events = self.copy.events;
            events.event(Event::DamagedLink { path, link });
        }
        StagedObject::Tree(StagedPath { tree, info })
    }

    /// What has gone by was for nothing, and comes once more.
    pub(super) fn reset_progress(&mut self) {
        let path = &self.item.narinfo.info.path;
        let nar_bytes = -std::mem::take(&mut self.reported_bytes);
        let events = self.copy.events;
        events.event(Event::Progress { path, nar_bytes });
    }

    /// Brings a NAR from `from`, where it lies on this machine, to `sink`, and compares it with
    /// what was promised.
    pub(super) fn copy_local_nar(
        &mut self,
        from: &str,
        sink: &mut dyn NarSink,
        read: impl FnOnce(&mut WriteChunk<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let item = self.item;
        let mut verifier = NarVerifier::new(&item.narinfo.info, from, self.worker);
        read(&mut |chunk| self.write_chunk(chunk, &mut verifier, sink))?;
        verifier.finish().map(|_| ())
    }

    /// Brings the NAR to `sink`. Returns only if every byte was right.
    fn receive(&mut self, nar: NarStream, sink: &mut dyn NarSink) -> Result<(), Error> {
        let narinfo = &self.item.narinfo;
        let url = self.url();
        let mut verifier = NarVerifier::new(&narinfo.info, &url, self.worker);
        let mut file_check = None;
        match nar {
            NarStream::Body(body) => file_check = Some(self.decode(body, &mut verifier, sink)?),
            NarStream::Dump(dump) => {
                dump.run(&mut |chunk| self.write_chunk(chunk, &mut verifier, sink))?;
            }
        }
        let nar_hash = verifier.finish()?;
        match file_check {
            Some((size, hash)) => {
                self.fetched = size;
                check_file(narinfo, &url, size, hash.or(Some(nar_hash)))
            }
            None => Ok(()),
        }
    }

    /// Decodes a body; its size and, where that is not the NAR hash, its hash.
    fn decode(
        &mut self,
        body: Body,
        verifier: &mut NarVerifier<'_>,
        sink: &mut dyn NarSink,
    ) -> Result<(u64, Option<Hash>), Error> {
        let narinfo = &self.item.narinfo;
        let plain = narinfo.compression == Compression::None;
        let algorithm = narinfo
            .file_hash
            .filter(|hash| !plain || hash.algorithm() != HashAlgorithm::Sha256)
            .map(|hash| hash.algorithm());
        let nar_size = narinfo.info.nar_size;
        let len_max = narinfo
            .file_size
            .unwrap_or_else(|| nar_size.saturating_mul(2).saturating_add(SLACK_LEN));
        let (events, path) = (self.copy.events, &narinfo.info.path);
        let fetched = |bytes| events.event(Event::Fetched { path, bytes });
        let mut reader = BodyReader::new(body, algorithm, (nar_size, len_max), self.worker);
        reader.on_bytes(&fetched);
        let written = match plain {
            true => self.write_plain(&mut reader, verifier, sink),
            false => self.write_decoded(&mut reader, verifier, sink),
        };
        // The body's own story comes before what a decoder or parser made of it.
        let drained = written.and_then(|()| match reader.drain() {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.decode_error("data follows the end of the compressed NAR")),
            Err(error) => Err(self.decode_error(error)),
        });
        match (reader.take_failure(), drained) {
            (Some(failure), _) => Err(failure),
            (None, Ok(())) => Ok(reader.finish()),
            (None, Err(error)) => Err(self.body_error(reader, error)),
        }
    }

    fn write_plain(
        &mut self,
        reader: &mut BodyReader,
        verifier: &mut NarVerifier<'_>,
        sink: &mut dyn NarSink,
    ) -> Result<(), Error> {
        loop {
            let chunk = reader
                .fill_buf()
                .map_err(|error| self.decode_error(error))?;
            let len = chunk.len();
            if len == 0 {
                return Ok(());
            }
            self.write_chunk(chunk, verifier, sink)?;
            reader.consume(len);
        }
    }

    fn write_decoded(
        &mut self,
        reader: &mut BodyReader,
        verifier: &mut NarVerifier<'_>,
        sink: &mut dyn NarSink,
    ) -> Result<(), Error> {
        let compression = self.item.narinfo.compression;
        let head = reader.fill_buf().map_err(|e| self.decode_error(e))?;
        // What does not say how much it needs may need all.
        let window = codec::window_len(compression, head).unwrap_or(codec::WINDOW_LEN_MAX);
        let (decoder_budget, worker) = (self.decoder_budget, self.worker);
        let wait = || worker.yield_core_while(|| decoder_budget.acquire(window));
        let _permit = decoder_budget.try_acquire(window).unwrap_or_else(wait);
        let decoder = codec::decoder(compression, reader, window);
        let decoder = decoder.map_err(|e| self.decode_error(e))?;
        let mut decoder = decoder.ok_or_else(|| Error::UnsupportedCompression {
            path: self.item.narinfo.info.path.clone(),
            name: compression.name().into(),
        })?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = loop {
            match decoder.read(scratch) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    if let Err(error) = self.write_chunk(&scratch[..len], verifier, sink) {
                        break Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(self.decode_error(error)),
            }
        };
        std::mem::swap(&mut self.scratch, &mut scratch);
        written
    }

    /// A chunk of the NAR goes by.
    fn write_chunk(
        &mut self,
        chunk: &[u8],
        verifier: &mut NarVerifier<'_>,
        sink: &mut dyn NarSink,
    ) -> Result<(), Error> {
        self.copy.check_cancelled()?;
        verifier.update(chunk)?;
        sink.write(chunk)?;
        let nar_bytes = chunk.len() as i64;
        self.reported_bytes += nar_bytes;
        let path = &self.item.narinfo.info.path;
        self.copy.events.event(Event::Progress { path, nar_bytes });
        Ok(())
    }

    /// Where the NAR comes from, in full.
    fn url(&self) -> String {
        self.copy.source_of(self.item).nar_url(&self.item.narinfo)
    }

    fn decode_error(&self, reason: impl ToString) -> Error {
        Error::Decode {
            path: self.item.narinfo.info.path.clone(),
            url: self.url(),
            compression: self.item.narinfo.compression,
            reason: reason.to_string(),
        }
    }

    /// A body that makes no sense is often just not the promised body, which says more.
    fn body_error(&self, mut reader: BodyReader, error: Error) -> Error {
        let is_about_contents = matches!(
            error,
            Error::Decode { .. } | Error::Mismatch { .. } | Error::Store(StoreError::Nar { .. })
        );
        if !is_about_contents || reader.drain().is_err() {
            return reader.take_failure().unwrap_or(error);
        }
        let (size, hash) = reader.finish();
        check_file(&self.item.narinfo, &self.url(), size, hash)
            .err()
            .unwrap_or(error)
    }
}

/// A chunk stays in the second-level cache between decoding, hashing and writing.
const CHUNK_LEN: usize = 256 * 1024;

/// No compression makes a body more than a little larger than its contents; this is for the
/// frames of empty ones.
const SLACK_LEN: u64 = 1024 * 1024;
