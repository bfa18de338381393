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
use floe_store::hashing::{Place, Worker};
use floe_store::tree::write::{TemporaryTree, TreeWriter};
use floe_store::{StagedPath, StoreError, StoreWriter};

use super::check::{NarCheck, check_file};
use super::fetch::{End, Queue, Work};
use super::{Finished, Item, Mover, TargetKind, elsewhere, pack};
use crate::body::{Body, BodyReader};
use crate::cache::Kind;
use crate::cache::http::request::pause;
use crate::cancel::CANCEL_POLL;
use crate::codec::{self, Memory};
use crate::error::Error;
use crate::report::Event;

/// What a worker says of a path: what became of it.
pub(crate) struct Done {
    pub(crate) path: StorePath,
    pub(crate) result: Result<Arrival, Error>,
}

/// A path that has arrived, whole and right.
pub(crate) struct Arrival {
    pub(crate) finished: Finished,
    /// How many bytes were fetched for it.
    pub(crate) fetched: u64,
    /// It lay on this machine.
    pub(crate) is_taken: bool,
}

/// Where the bytes of a NAR go.
pub(crate) trait Sink {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error>;
}

/// Takes the chunks of a NAR, one after the other.
pub(super) type Pass<'p> = dyn FnMut(&[u8]) -> Result<(), Error> + 'p;

impl Sink for TreeWriter {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        Ok(TreeWriter::write(self, nar)?)
    }
}

/// Takes paths from the queue until there are no more.
pub(crate) fn work(mover: &Mover<'_>, queue: &Queue<'_>, place: Place, results: &SyncSender<Done>) {
    let worker = place.take();
    let end = match worker.takes_the_smallest() {
        true => End::Smallest,
        false => End::Largest,
    };
    let mut scratch = vec![0; CHUNK_LEN];
    while let Some(turn) = queue.next(end) {
        let item = turn.item;
        let path = item.narinfo.info.path.clone();
        let nar_size = item.narinfo.info.nar_size;
        mover.reporter.event(Event::Started {
            path: &path,
            nar_size,
        });
        let result = receive_from_anywhere(mover, queue, turn, (&worker, &mut scratch));
        mover.reporter.event(match &result {
            Ok(_) => Event::Finished { path: &path },
            Err(_) => Event::Abandoned { path: &path },
        });
        // Nobody takes results any more when the move has failed as a whole.
        let is_wanted = worker.away(|| results.send(Done { path, result }).is_ok());
        if !is_wanted {
            return;
        }
    }
}

/// Receives a path from what lies on this machine, from its source, or else from any other
/// that has it.
fn receive_from_anywhere(
    mover: &Mover<'_>,
    queue: &Queue<'_>,
    mut turn: Work<'_>,
    (worker, scratch): (&Worker, &mut [u8]),
) -> Result<Arrival, Error> {
    let item = turn.item;
    if item.is_here() {
        let mut transfer = Transfer::new(mover, queue, item, (worker, &mut *scratch));
        if let Some(finished) = transfer.take()? {
            return Ok(Arrival {
                finished,
                fetched: 0,
                is_taken: true,
            });
        }
        mover.check_cancelled()?;
        turn.body = queue.open(item);
    }
    let first = match receive_with_retries(mover, queue, turn, (worker, &mut *scratch)) {
        Err(error) if elsewhere::may_help(&error) => error,
        result => return result,
    };
    let path = &item.narinfo.info.path;
    for source in elsewhere::sources(mover, item) {
        let found = worker.away(|| elsewhere::find(mover, item, source));
        let Some(other) = found else { continue };
        mover.check_cancelled()?;
        mover.reporter.event(Event::Retrying {
            path: Some(path),
            error: &first,
        });
        let turn = Work {
            body: queue.open(&other),
            item: &other,
            waited: false,
        };
        match receive_with_retries(mover, queue, turn, (worker, &mut *scratch)) {
            Err(error) if elsewhere::may_help(&error) => {}
            result => return result,
        }
    }
    Err(first)
}

fn receive_with_retries(
    mover: &Mover<'_>,
    queue: &Queue<'_>,
    turn: Work<'_>,
    (worker, scratch): (&Worker, &mut [u8]),
) -> Result<Arrival, Error> {
    let Work {
        item,
        mut body,
        mut waited,
    } = turn;
    let mut attempt = 1;
    loop {
        let mut transfer = Transfer::new(mover, queue, item, (worker, &mut *scratch));
        let result = match body {
            Ok(body) => transfer.bring(body),
            Err(error) => Err(error),
        };
        match result {
            Ok(finished) => {
                return Ok(Arrival {
                    finished,
                    fetched: transfer.fetched,
                    is_taken: false,
                });
            }
            Err(error) if error.is_transient() && attempt < mover.sources.attempts => {
                transfer.forget_progress();
                mover.reporter.event(Event::Retrying {
                    path: Some(&item.narinfo.info.path),
                    error: &error,
                });
                // A server that says when to come back has not lost patience.
                let is_free = std::mem::take(&mut waited) && !error.names_a_time();
                if !is_free {
                    let time = pause(attempt, &error);
                    worker.away(|| rest(mover, queue, item, time))?;
                    attempt += 1;
                }
                mover.check_cancelled()?;
                body = queue.open(item);
            }
            Err(error) => {
                // Whoever tries elsewhere begins again.
                transfer.forget_progress();
                return Err(error);
            }
        }
    }
}

/// Waits before another attempt, unless there will be none.
fn rest(mover: &Mover<'_>, queue: &Queue<'_>, item: &Item, time: Duration) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        mover.check_cancelled()?;
        if !queue.is_wanted(&item.narinfo.info.path) {
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
    pub(super) mover: &'a Mover<'a>,
    pub(super) item: &'a Item,
    worker: &'a Worker,
    memory: &'a Memory,
    scratch: &'a mut [u8],
    /// How many bytes of the NAR the reporter knows of.
    shown: i64,
    fetched: u64,
}

impl<'a> Transfer<'a> {
    fn new(
        mover: &'a Mover<'a>,
        queue: &'a Queue<'a>,
        item: &'a Item,
        (worker, scratch): (&'a Worker, &'a mut [u8]),
    ) -> Transfer<'a> {
        Transfer {
            mover,
            item,
            worker,
            memory: queue.memory(),
            scratch,
            shown: 0,
            fetched: 0,
        }
    }

    fn bring(&mut self, body: Option<Body>) -> Result<Finished, Error> {
        match &self.mover.target.0 {
            TargetKind::Store(store) => {
                let mut writer = self.writer(store)?;
                self.receive(body, &mut writer)?;
                Ok(self.finished(writer.finish()?))
            }
            // Nothing is transferred on a dry run.
            TargetKind::Preview(_) => Err(Error::Cancelled),
            TargetKind::Cache(cache) => {
                let narinfo = &self.item.narinfo;
                let worker = self.worker;
                pack::pack(cache, narinfo, worker, |sink| self.receive(body, sink))
                    .map(Finished::Nar)
            }
        }
    }

    /// What writes the path's tree into a store, as the options have it.
    pub(super) fn writer(&self, store: &StoreWriter) -> Result<TreeWriter, Error> {
        let path = &self.item.narinfo.info.path;
        Ok(match self.mover.options.optimise {
            true => store.optimising_tree_writer(path)?,
            false => store.tree_writer(path),
        })
    }

    /// A tree whose every byte was right.
    pub(super) fn finished(&self, tree: TemporaryTree) -> Finished {
        let info = self.item.narinfo.info.clone();
        for link in tree.damaged_links() {
            let path = &info.path;
            let reporter = self.mover.reporter;
            reporter.event(Event::DamagedLink { path, link });
        }
        Finished::Tree(StagedPath { tree, info })
    }

    /// What has gone by was for nothing, and comes once more.
    pub(super) fn forget_progress(&mut self) {
        let path = &self.item.narinfo.info.path;
        let nar_bytes = -std::mem::take(&mut self.shown);
        let reporter = self.mover.reporter;
        reporter.event(Event::Progress { path, nar_bytes });
    }

    /// Brings a NAR from `from`, where it lies on this machine, to `sink`, and compares it with
    /// what was promised.
    pub(super) fn pass_all(
        &mut self,
        from: &str,
        sink: &mut dyn Sink,
        read: impl FnOnce(&mut Pass<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let item = self.item;
        let mut check = NarCheck::new(&item.narinfo.info, from, self.worker);
        read(&mut |chunk| self.pass(chunk, &mut check, sink))?;
        check.finish().map(|_| ())
    }

    /// Brings the NAR to `sink`. Returns only if every byte was right.
    fn receive(&mut self, body: Option<Body>, sink: &mut dyn Sink) -> Result<(), Error> {
        let narinfo = &self.item.narinfo;
        let url = self.url();
        let mut check = NarCheck::new(&narinfo.info, &url, self.worker);
        let mut file_check = None;
        match (body, &self.mover.source_of(self.item).kind) {
            (Some(body), _) => file_check = Some(self.decode(body, &mut check, sink)?),
            (None, Kind::Store(store, _)) => {
                store.dump(&narinfo.info.path, &mut |chunk| {
                    self.pass(chunk, &mut check, sink)
                })?;
            }
            (None, _) => return Err(Error::Cancelled),
        }
        let nar_hash = check.finish()?;
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
        check: &mut NarCheck<'_>,
        sink: &mut dyn Sink,
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
        let (reporter, path) = (self.mover.reporter, &narinfo.info.path);
        let fetched = |bytes| reporter.event(Event::Fetched { path, bytes });
        let mut reader = BodyReader::new(body, algorithm, (nar_size, len_max), self.worker);
        reader.tell(&fetched);
        let passed = match plain {
            true => self.pass_plain(&mut reader, check, sink),
            false => self.pass_decoded(&mut reader, check, sink),
        };
        // The body's own story comes before what a decoder or parser made of it.
        let drained = passed.and_then(|()| match reader.drain() {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.undecodable("data follows the end of the compressed NAR")),
            Err(error) => Err(self.undecodable(error)),
        });
        match (reader.take_failure(), drained) {
            (Some(failure), _) => Err(failure),
            (None, Ok(())) => Ok(reader.finish()),
            (None, Err(error)) => Err(self.explain(reader, error)),
        }
    }

    fn pass_plain(
        &mut self,
        reader: &mut BodyReader,
        check: &mut NarCheck<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        loop {
            let chunk = reader.fill_buf().map_err(|error| self.undecodable(error))?;
            let len = chunk.len();
            if len == 0 {
                return Ok(());
            }
            self.pass(chunk, check, sink)?;
            reader.consume(len);
        }
    }

    fn pass_decoded(
        &mut self,
        reader: &mut BodyReader,
        check: &mut NarCheck<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let compression = self.item.narinfo.compression;
        let head = reader.fill_buf().map_err(|e| self.undecodable(e))?;
        // What does not say how much it needs may need all.
        let window = codec::window_len(compression, head).unwrap_or(codec::WINDOW_LEN_MAX);
        let (memory, worker) = (self.memory, self.worker);
        let wait = || worker.away(|| memory.take(window));
        let _permit = memory.try_take(window).unwrap_or_else(wait);
        let decoder = codec::decoder(compression, reader, window);
        let decoder = decoder.map_err(|e| self.undecodable(e))?;
        let mut decoder = decoder.ok_or_else(|| Error::UnsupportedCompression {
            path: self.item.narinfo.info.path.clone(),
            name: compression.name().into(),
        })?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let passed = loop {
            match decoder.read(scratch) {
                Ok(0) => break Ok(()),
                Ok(len) => {
                    if let Err(error) = self.pass(&scratch[..len], check, sink) {
                        break Err(error);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(self.undecodable(error)),
            }
        };
        std::mem::swap(&mut self.scratch, &mut scratch);
        passed
    }

    /// A chunk of the NAR goes by.
    fn pass(
        &mut self,
        chunk: &[u8],
        check: &mut NarCheck<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        self.mover.check_cancelled()?;
        check.update(chunk)?;
        sink.write(chunk)?;
        let nar_bytes = chunk.len() as i64;
        self.shown += nar_bytes;
        let path = &self.item.narinfo.info.path;
        self.mover
            .reporter
            .event(Event::Progress { path, nar_bytes });
        Ok(())
    }

    /// Where the NAR comes from, in full.
    fn url(&self) -> String {
        let url = &self.item.narinfo.url;
        match self.mover.source_of(self.item) {
            source if source.as_store().is_some() || url.contains("://") => url.clone(),
            source => format!("{}/{url}", source.name().trim_end_matches('/')),
        }
    }

    fn undecodable(&self, reason: impl ToString) -> Error {
        Error::Decode {
            path: self.item.narinfo.info.path.clone(),
            url: self.url(),
            compression: self.item.narinfo.compression,
            reason: reason.to_string(),
        }
    }

    /// A body that makes no sense is often just not the promised body, which says more.
    fn explain(&self, mut reader: BodyReader, error: Error) -> Error {
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
