//! A NAR that a source has opened: a body that is read chunk by chunk, or a tree that is dumped.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use floe_format::{Hash, HashAlgorithm};
use floe_hash::Hasher;
use floe_hash::hash_pool::{Stream, Worker};

use crate::cancel::CANCEL_POLL;
use crate::error::Error;
use crate::receive_times::{ReceiveTimes, timed};

/// A NAR that a source has opened.
///
/// The kind is chosen once for each NAR.
pub enum NarStream {
    /// The file of a binary cache, compressed as its narinfo says.
    Body(Body),
    /// An uncompressed NAR that the source writes itself.
    Dump(NarDump),
}

/// Receives the chunks of a NAR in order.
pub type WriteChunk<'w> = dyn FnMut(&[u8]) -> Result<(), Error> + 'w;

/// A function that passes one NAR to its argument, chunk by chunk, on the thread of its caller. It
/// stops at the first error.
pub type NarDump = Box<dyn FnOnce(&mut WriteChunk<'_>) -> Result<(), Error> + Send>;

/// The next bytes of a body; `None` after the last ones.
pub type NextChunk = Result<Option<Bytes>, Error>;

/// A body that arrives chunk by chunk, such as the reply to a request.
pub trait ChunkSource: Debug + Send {
    /// Called once, when a worker begins to read.
    fn begin(&mut self) {}

    /// Returns the next chunk if it has arrived. `None` means that the worker has to wait.
    fn try_next(&mut self) -> Option<NextChunk>;

    /// Waits for the next chunk.
    fn wait_for_next(&mut self) -> NextChunk;

    /// Waits for the next chunk, at most for a time. `None` means that the chunk has not arrived.
    /// By default the source waits without a limit, because it notices a cancellation itself.
    fn wait_within(&mut self, _time: Duration) -> Option<NextChunk> {
        Some(self.wait_for_next())
    }
}

/// The body of a NAR file, compressed as its narinfo says.
#[derive(Debug)]
pub enum Body {
    /// A body that arrives while a worker reads it.
    Chunks(Box<dyn ChunkSource>),
    /// A file on this machine.
    File {
        /// The open file.
        file: File,
        /// Its path, for messages.
        path: PathBuf,
    },
}

/// Reads a body, counts its bytes, and hashes them on demand.
pub(crate) struct BodyReader<'a> {
    /// `None` after the end and after an error.
    body: Option<Body>,
    /// The bytes that are counted and hashed, but not consumed yet.
    current: Bytes,
    hasher: Option<FileHasher>,
    worker: &'a Worker,
    check: Option<&'a dyn Fn() -> Result<(), Error>>,
    /// Receives the number of new bytes.
    on_bytes: Option<&'a dyn Fn(u64)>,
    len: u64,
    len_max: u64,
    /// Fetching and hashing.
    times: ReceiveTimes,
    /// The error that ended the body. Decoders would turn it into an error of their own.
    failure: Option<Error>,
}

/// Hashes a body with the algorithm of its narinfo, which is nearly always SHA-256.
enum FileHasher {
    Sha256(Stream),
    Other(HashAlgorithm, Hasher),
}

impl FileHasher {
    fn new(algorithm: HashAlgorithm, nar_size: u64, worker: &Worker) -> FileHasher {
        match algorithm {
            HashAlgorithm::Sha256 => FileHasher::Sha256(worker.secondary_stream(nar_size)),
            other => FileHasher::Other(other, Hasher::new(other)),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            FileHasher::Sha256(stream) => stream.update(bytes),
            FileHasher::Other(_, hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Option<Hash> {
        match self {
            FileHasher::Sha256(stream) => Some(Hash::sha256(stream.finish())),
            FileHasher::Other(algorithm, hasher) => Hash::new(algorithm, &hasher.finish()).ok(),
        }
    }
}

impl<'a> BodyReader<'a> {
    /// Makes a reader that fails after `len_max` bytes. It hashes the bytes if `hashed` names an
    /// algorithm.
    pub(crate) fn new(
        mut body: Body,
        hashed: Option<HashAlgorithm>,
        (nar_size, len_max): (u64, u64),
        worker: &'a Worker,
    ) -> BodyReader<'a> {
        if let Body::Chunks(chunks) = &mut body {
            chunks.begin();
        }
        let hasher = hashed.map(|algorithm| FileHasher::new(algorithm, nar_size, worker));
        BodyReader {
            body: Some(body),
            current: Bytes::new(),
            hasher,
            worker,
            on_bytes: None,
            check: None,
            len: 0,
            len_max,
            times: ReceiveTimes::default(),
            failure: None,
        }
    }

    /// Calls `on_bytes` with the length of each further chunk.
    pub(crate) fn on_bytes(&mut self, on_bytes: &'a dyn Fn(u64)) {
        self.on_bytes = Some(on_bytes);
    }

    /// Calls `check` again and again while no chunk arrives. Its error ends the body.
    pub(crate) fn check_while_waiting(&mut self, check: &'a dyn Fn() -> Result<(), Error>) {
        self.check = Some(check);
    }

    /// Returns the times of fetching and hashing so far.
    pub(crate) fn times(&self) -> ReceiveTimes {
        self.times
    }

    /// Returns the error that ended the body, if there is one.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Reads and drops the rest of the body. Returns its length.
    ///
    /// A decoder may have all its output before its input ends. The rest must be read too, because
    /// the file size covers it, and because the connection can be reused only after it.
    pub(crate) fn drain(&mut self) -> io::Result<u64> {
        let mut drained = 0;
        loop {
            let len = self.fill_buf()?.len();
            if len == 0 {
                return Ok(drained);
            }
            drained += len as u64;
            self.consume(len);
        }
    }

    /// Returns the length of the body, and its hash if it was requested.
    pub(crate) fn finish(self) -> (u64, Option<Hash>) {
        (self.len, self.hasher.and_then(FileHasher::finish))
    }

    fn next_chunk(&mut self) -> NextChunk {
        match &mut self.body {
            None => Ok(None),
            Some(Body::Chunks(chunks)) => match chunks.try_next() {
                Some(next) => next,
                None => {
                    let check = self.check;
                    self.worker.yield_core_while(|| {
                        loop {
                            if let Some(next) = chunks.wait_within(CANCEL_POLL) {
                                return next;
                            }
                            check.map_or(Ok(()), |check| check())?;
                        }
                    })
                }
            },
            Some(Body::File { file, path }) => {
                let mut chunk = Vec::with_capacity(FILE_CHUNK_LEN);
                let read = file.take(FILE_CHUNK_LEN as u64).read_to_end(&mut chunk);
                match read {
                    Ok(0) => Ok(None),
                    Ok(_) => Ok(Some(chunk.into())),
                    Err(source) => Err(Error::UnreadableFile {
                        action: "read",
                        path: path.clone(),
                        source,
                    }),
                }
            }
        }
    }

    fn fail(&mut self, error: Error) -> io::Error {
        let message = error.to_string();
        self.failure = Some(error);
        self.body = None;
        io::Error::other(message)
    }
}

impl BufRead for BodyReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() {
            let began = Instant::now();
            let chunk = self.next_chunk();
            self.times.fetch += began.elapsed();
            match chunk {
                Ok(Some(bytes)) => {
                    self.len += bytes.len() as u64;
                    if let Some(on_bytes) = self.on_bytes {
                        on_bytes(bytes.len() as u64);
                    }
                    if self.len > self.len_max {
                        // Do not read on: the body may be endless.
                        self.body = None;
                        let max = self.len_max;
                        return Err(io::Error::other(format!("the body exceeds {max} bytes")));
                    }
                    if let Some(hasher) = &mut self.hasher {
                        timed(&mut self.times.hash, || hasher.update(&bytes));
                    }
                    self.current = bytes;
                }
                Ok(None) => {
                    self.body = None;
                    break;
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, len: usize) {
        let _: Bytes = self.current.split_to(len);
    }
}

impl Read for BodyReader<'_> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let len = available.len().min(output.len());
        output[..len].copy_from_slice(&available[..len]);
        self.consume(len);
        Ok(len)
    }
}

/// The length of a chunk of a file, in bytes. It stays in the second-level cache between reading,
/// decoding and hashing.
const FILE_CHUNK_LEN: usize = 128 * 1024;
