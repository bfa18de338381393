//! One NAR between its source and its target: decoded, hashed and verified on a worker.
//!
//! 1. The worker reads a chunk of the body, and hashes it as a part of the file if the user asked
//!    for this: no signature covers the file hash, and each damage that changes the NAR changes the
//!    NAR hash.
//! 2. It decodes the chunk into a chunk of the NAR.
//! 3. It hashes this chunk and writes it to the target's sink.
//! 4. At the end of the NAR it reads the body to *its* end, and compares sizes and hashes.
//!
//! All steps run on one thread, chunk by chunk, so that a chunk stays in the processor's cache. At
//! the end of a copy, when cores are idle, other threads decompress frames of zstd and hash large
//! NARs.

use std::io::{self, BufRead, Read};
use std::path::Path;

use floe_format::{Compression, Hash, HashAlgorithm, NarInfo, StorePath};
use floe_hash::hash_pool::Worker;
use floe_store::StoreError;

use crate::codec::{
    self, DecoderBudget, XzBlocks, XzChecks, XzThreads, ZstdDecoder, has_zstd_frames,
};
use crate::error::Error;
use crate::events::{Event, EventSink};
use crate::nar_stream::{Body, BodyReader, NarStream, WriteChunk};
use crate::nar_verifier::{NarVerifier, check_file};
use crate::options::CopyOptions;
use crate::planned_path::PlannedPath;
use crate::receive_times::{ReceiveTimes, timed};

/// Receives the chunks of a NAR in order.
pub trait NarSink {
    /// Writes the next chunk.
    fn write(&mut self, nar: &[u8]) -> Result<(), Error>;
}

/// The part of an [`IncomingNar`] that all NARs of one worker share.
#[derive(Clone, Copy)]
pub struct NarContext<'a> {
    /// The options of the copy.
    pub options: &'a CopyOptions,
    /// Receives the events of the copy.
    pub events: &'a dyn EventSink,
    /// The worker, which hashes.
    pub worker: &'a Worker,
    /// The memory that the decoders of all workers share.
    pub decoder_budget: &'a DecoderBudget,
    /// Knows which paths the copy still needs.
    pub needed: &'a dyn NeededPaths,
}

/// Knows which paths a copy still needs: none whose reference has failed.
pub trait NeededPaths {
    /// Whether the copy needs a path.
    fn is_needed(&self, path: &StorePath) -> bool;
}

/// All paths are needed.
impl NeededPaths for () {
    fn is_needed(&self, _: &StorePath) -> bool {
        true
    }
}

/// One attempt to receive one path.
///
/// A target calls [`IncomingNar::write_to`] with a sink of its own type, so that chunks pass
/// through no dynamic dispatch.
pub struct IncomingNar<'a> {
    context: NarContext<'a>,
    path: &'a PlannedPath,
    /// `None` before the source has opened the NAR, and after it was written.
    stream: Option<NarStream>,
    /// The address of the NAR, for messages.
    url: String,
    /// A buffer for decoded chunks.
    scratch: &'a mut [u8],
    /// The bytes of the NAR that were reported as progress.
    reported_bytes: i64,
    /// Whether these bytes come from files of this machine.
    is_reused: bool,
    fetched_bytes: u64,
    times: ReceiveTimes,
}

impl<'a> IncomingNar<'a> {
    /// Makes an attempt without a NAR from the source.
    pub fn new(
        context: NarContext<'a>,
        path: &'a PlannedPath,
        scratch: &'a mut [u8],
    ) -> IncomingNar<'a> {
        IncomingNar {
            context,
            path,
            stream: None,
            url: String::new(),
            scratch,
            reported_bytes: 0,
            is_reused: false,
            fetched_bytes: 0,
            times: ReceiveTimes::default(),
        }
    }

    /// Adds the NAR that the source has opened, and its address for messages.
    pub fn set_stream(&mut self, stream: NarStream, url: String) {
        self.stream = Some(stream);
        self.url = url;
    }

    /// Returns the narinfo that the NAR must match.
    pub fn narinfo(&self) -> &'a NarInfo {
        &self.path.narinfo
    }

    /// Returns the store path.
    pub fn path(&self) -> &'a StorePath {
        &self.path.narinfo.info.path
    }

    /// Returns the plan's entry for the path.
    pub fn planned(&self) -> &'a PlannedPath {
        self.path
    }

    /// Returns the options of the copy.
    pub fn options(&self) -> &'a CopyOptions {
        self.context.options
    }

    /// Returns the receiver of the copy's events.
    pub fn events(&self) -> &'a dyn EventSink {
        self.context.events
    }

    /// Returns the worker, for a hash of what the target writes.
    pub fn worker(&self) -> &'a Worker {
        self.context.worker
    }

    /// Returns the number of bytes that the source has sent.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes
    }

    /// Reports the progress so far as undone, because the same bytes will be received again.
    pub fn reset_progress(&mut self) {
        let nar_bytes = -std::mem::take(&mut self.reported_bytes);
        self.report_progress(nar_bytes);
    }

    fn report_progress(&self, nar_bytes: i64) {
        self.context.events.event(Event::Progress {
            path: self.path(),
            nar_bytes,
            is_reused: self.is_reused,
        });
    }

    /// Writes the NAR to `sink`. Returns `Ok` only if every byte matched the narinfo.
    ///
    /// Errors: those of the source and of the sink; [`Error::Mismatch`] and [`Error::Decode`] for a
    /// NAR that does not match its narinfo; [`Error::Cancelled`]; [`Error::Internal`] for a second
    /// call.
    pub fn write_to<S: NarSink>(&mut self, sink: &mut S) -> Result<(), Error> {
        self.is_reused = false;
        let narinfo = self.narinfo();
        let url = self.url.clone();
        let mut verifier = NarVerifier::new(self.path, &url, self.context.worker);
        let mut file_check = None;
        match self.stream.take() {
            Some(NarStream::Body(body)) => {
                file_check = Some(self.decode(body, &mut verifier, sink)?);
            }
            Some(NarStream::Dump(dump)) => {
                dump(&mut |chunk| self.write_chunk(chunk, &mut verifier, sink))?;
            }
            None => return Err(Error::Internal("a target reads the NAR of a path twice")),
        }
        let nar_hash = verifier.finish()?;
        self.context.events.event(Event::Received {
            path: self.path(),
            times: self.times,
        });
        match file_check {
            Some((size, hash)) => {
                self.fetched_bytes = size;
                let is_nar = narinfo.compression == Compression::None;
                check_file(narinfo, &url, size, hash.or(is_nar.then_some(nar_hash)))
            }
            None => Ok(()),
        }
    }

    /// Writes the NAR that `read` makes from files at `place` on this machine. Verifies it as
    /// [`IncomingNar::write_to`] does.
    pub fn write_local<S: NarSink>(
        &mut self,
        place: &Path,
        sink: &mut S,
        read: impl FnOnce(&mut WriteChunk<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.is_reused = true;
        let from = place.display().to_string();
        let mut verifier = NarVerifier::new(self.path, &from, self.context.worker);
        read(&mut |chunk| self.write_chunk(chunk, &mut verifier, sink))?;
        verifier.finish().map(|_| ())
    }

    /// Decodes a body. Returns its size, and its hash if the user wants it compared and it is not
    /// the NAR hash.
    fn decode<S: NarSink>(
        &mut self,
        body: Body,
        verifier: &mut NarVerifier<'_>,
        sink: &mut S,
    ) -> Result<(u64, Option<Hash>), Error> {
        let narinfo = &self.path.narinfo;
        let plain = narinfo.compression == Compression::None;
        let algorithm = narinfo
            .file_hash
            .filter(|_| self.context.options.check_file_hash)
            .filter(|hash| !plain || hash.algorithm() != HashAlgorithm::Sha256)
            .map(|hash| hash.algorithm());
        let nar_size = narinfo.info.nar_size;
        // No signature covers the file size, so the NAR size limits it.
        let len_max = nar_size.saturating_mul(2).saturating_add(SLACK_LEN);
        let len_max = narinfo.file_size.unwrap_or(len_max).min(len_max);
        let (events, path) = (self.context.events, &narinfo.info.path);
        let fetched = |bytes| events.event(Event::Fetched { path, bytes });
        let mut reader = BodyReader::new(body, algorithm, (nar_size, len_max), self.context.worker);
        reader.on_bytes(&fetched);
        let (needed, cancel) = (self.context.needed, &self.context.options.cancel);
        let check = || match () {
            () if cancel.is_raised() => Err(Error::Cancelled),
            () if !needed.is_needed(path) => Err(Error::NotNeeded),
            () => Ok(()),
        };
        reader.check_while_waiting(&check);
        let written = if plain {
            self.write_plain(&mut reader, verifier, sink)
        } else {
            self.write_decoded(&mut reader, verifier, sink)
        };
        // The decoder calls the reader.
        let times = reader.times();
        self.times.decode = self.times.decode.saturating_sub(times.fetch + times.hash);
        self.times.add(times);
        // A failure of the body wins over the error of the decoder or parser that it caused.
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

    /// The hash of the NAR covers the contents. A user who wants the hash of the file compared
    /// wants to know about each fault of the file.
    fn xz_checks(&self) -> XzChecks {
        if self.context.options.check_file_hash {
            XzChecks::Compare
        } else {
            XzChecks::Ignore
        }
    }

    fn write_plain<S: NarSink>(
        &mut self,
        reader: &mut BodyReader,
        verifier: &mut NarVerifier<'_>,
        sink: &mut S,
    ) -> Result<(), Error> {
        let head = reader.fill_buf().map_err(|e| self.decode_error(e))?;
        self.check_format(head)?;
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

    fn write_decoded<S: NarSink>(
        &mut self,
        reader: &mut BodyReader,
        verifier: &mut NarVerifier<'_>,
        sink: &mut S,
    ) -> Result<(), Error> {
        let compression = self.path.narinfo.compression;
        let head = reader.fill_buf().map_err(|e| self.decode_error(e))?;
        self.check_format(head)?;
        // A body that does not declare its window may need the largest one.
        let window = codec::window_len(compression, head).unwrap_or(codec::WINDOW_LEN_MAX);
        let nar_size = self.path.narinfo.info.nar_size;
        let has_frames = compression == Compression::Zstd && has_zstd_frames(head, nar_size);
        let NarContext {
            decoder_budget,
            worker,
            ..
        } = self.context;
        let wait = || worker.yield_core_while(|| decoder_budget.acquire(window, nar_size));
        let permit = decoder_budget.try_acquire(window, nar_size);
        let _permit = permit.unwrap_or_else(wait);
        if has_frames {
            let cores = worker.idle_cores().clone();
            let limits = (window, nar_size);
            let decoder = ZstdDecoder::new(reader, limits, decoder_budget, cores);
            return self.write_pieces(decoder, verifier, sink);
        }
        let cores = worker.idle_cores();
        let threads = XzThreads::for_body(compression, (head, nar_size), decoder_budget, cores);
        let decoder = match threads {
            Some(threads) => XzBlocks::new(reader, threads)
                .map(|blocks| Some(Box::new(blocks) as Box<dyn Read + '_>)),
            None => codec::decoder(compression, reader, window, self.xz_checks()),
        };
        let decoder = decoder.map_err(|e| self.decode_error(e))?;
        let mut decoder = decoder.ok_or_else(|| Error::Unsupported {
            path: self.path().clone(),
            feature: format!("the compression {}", compression.name()),
        })?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = loop {
            match timed(&mut self.times.decode, || decoder.read(scratch)) {
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

    /// Writes the pieces of a decoder that has them in its own memory.
    fn write_pieces<S: NarSink>(
        &mut self,
        mut decoder: impl BufRead,
        verifier: &mut NarVerifier<'_>,
        sink: &mut S,
    ) -> Result<(), Error> {
        loop {
            let piece = match timed(&mut self.times.decode, || decoder.fill_buf()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                piece => piece.map_err(|error| self.decode_error(error))?,
            };
            let len = piece.len();
            if len == 0 {
                return Ok(());
            }
            self.write_chunk(piece, verifier, sink)?;
            decoder.consume(len);
        }
    }

    /// Fails if a body begins like a file of another compression than the narinfo says.
    fn check_format(&self, head: &[u8]) -> Result<(), Error> {
        let named = self.path.narinfo.compression;
        // Their files may begin with any bytes.
        if matches!(named, Compression::Brotli | Compression::Lzma) {
            return Ok(());
        }
        let found = match Compression::from_signature(head) {
            Some(found) if found == named => return Ok(()),
            Some(Compression::None) => "a NAR without compression",
            Some(found) => found.name(),
            None if head.starts_with(b"<") => "a web page",
            None => return Ok(()),
        };
        Err(self.decode_error(format!("the body begins like {found}")))
    }

    fn write_chunk<S: NarSink>(
        &mut self,
        chunk: &[u8],
        verifier: &mut NarVerifier<'_>,
        sink: &mut S,
    ) -> Result<(), Error> {
        if self.context.options.cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        timed(&mut self.times.hash, || verifier.update(chunk))?;
        timed(&mut self.times.write, || sink.write(chunk))?;
        let nar_bytes = chunk.len() as i64;
        self.reported_bytes += nar_bytes;
        self.report_progress(nar_bytes);
        Ok(())
    }

    fn decode_error(&self, reason: impl ToString) -> Error {
        Error::Decode {
            path: self.path.narinfo.info.path.clone(),
            url: self.url.clone(),
            compression: self.path.narinfo.compression,
            reason: reason.to_string(),
        }
    }

    /// Explains an error about the contents of a body: if the body itself does not match the
    /// narinfo, that is the better error. It must read the whole body to compare it.
    fn body_error(&self, mut reader: BodyReader, error: Error) -> Error {
        let is_about_contents = matches!(
            error,
            Error::Decode { .. } | Error::Mismatch { .. } | Error::Store(StoreError::Nar { .. })
        );
        if !is_about_contents || reader.drain().is_err() {
            return reader.take_failure().unwrap_or(error);
        }
        let (size, hash) = reader.finish();
        check_file(&self.path.narinfo, &self.url, size, hash)
            .err()
            .unwrap_or(error)
    }
}

/// How much larger than its contents a body may be. Only the frames of nearly empty bodies are
/// larger than their contents.
const SLACK_LEN: u64 = 1024 * 1024;
