//! Decompresses Zstandard bodies of several frames, on idle cores and on the calling thread.
//!
//! 1. The end of a frame follows from its block headers, so the caller collects a frame without
//!    decompressing it, and another thread decompresses it as a whole.
//! 2. The caller takes the results in their order. If the next one is not ready, it starts another
//!    thread, or decompresses a frame itself if no core is idle.
//! 3. A frame that is large, or does not declare its length, is decompressed as it arrives, and so
//!    is every frame while no core is idle.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use floe_hash::idle_cores::IdleCores;

use super::arriving_frame::{Arrived, ArrivingFrame};
use super::budget::{DecoderBudget, FramePermit};
use super::frame_queue::{Contents, Frame, FrameQueue};
use super::zstd_header::ZstdHeader;
use super::zstd_stream::ZstdStream;

/// Decompresses a body of several frames.
pub struct ZstdDecoder<'b, R> {
    body: R,
    /// The binary logarithm of the largest window, in bytes.
    window_log: u32,
    /// The number of bytes of the contents that no frame has declared yet.
    left: u64,
    budget: &'b DecoderBudget,
    cores: Arc<IdleCores>,
    arriving: ArrivingFrame,
    next: NextFrame,
    waiting: FrameQueue,
    /// The results for the collected frames.
    results: VecDeque<Receiver<io::Result<Contents>>>,
    /// The output that the caller has not consumed yet.
    current: Contents,
    consumed: usize,
    /// A buffer to use again: new memory costs time.
    spare: Option<Contents>,
    /// Decompresses the arriving frame.
    stream: Option<ZstdStream>,
    /// The permit for the bytes of a stream that had been collected.
    early_permit: Option<FramePermit>,
}

/// The state of the arriving frame.
#[derive(Debug)]
enum NextFrame {
    /// Its header has not arrived.
    Unknown,
    /// It is collected as soon as there is memory.
    Declared(ZstdHeader, u64),
    Collected(FramePermit, u64),
    /// It is decompressed as it arrives, after the frames before it.
    Stream,
    /// The body has ended.
    None,
}

/// Whether several frames make up the contents of a body, so that cores can divide them.
pub(crate) fn has_zstd_frames(head: &[u8], contents_len: u64) -> bool {
    let header = ZstdHeader::parse(head);
    let first = header.and_then(|header| header.contents_len);
    first.is_some_and(|first| FRAME_LENS.contains(&first) && first < contents_len)
}

impl<'b, R: BufRead> ZstdDecoder<'b, R> {
    /// Makes a decoder of a body with contents of `len` bytes. It refuses larger windows than
    /// `window` bytes.
    pub fn new(
        body: R,
        (window, len): (u64, u64),
        budget: &'b DecoderBudget,
        cores: Arc<IdleCores>,
    ) -> ZstdDecoder<'b, R> {
        ZstdDecoder {
            body,
            window_log: super::zstd_window_log(window),
            left: len,
            budget,
            cores,
            arriving: ArrivingFrame::default(),
            next: NextFrame::Unknown,
            waiting: FrameQueue::default(),
            results: VecDeque::new(),
            current: Contents::default(),
            consumed: 0,
            spare: None,
            stream: None,
            early_permit: None,
        }
    }

    /// Decompresses until there is output. Returns whether there is any.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            let is_busy = !self.results.is_empty();
            match &self.next {
                // Each thread finds its next frame, while the caller consumes a result.
                _ if is_busy && self.results.len() > self.waiting.threads() + 1 => {
                    return self.take_result();
                }
                NextFrame::Unknown | NextFrame::Collected(..) => self.read()?,
                NextFrame::None => return Ok(is_busy && self.take_result()?),
                NextFrame::Declared(header, len) => {
                    let (header, len) = (*header, *len);
                    match self.permit(&header, len) {
                        Some(permit) => self.next = NextFrame::Collected(permit, len),
                        None if is_busy => return self.take_result(),
                        None => self.next = NextFrame::Stream,
                    }
                }
                NextFrame::Stream if is_busy => return self.take_result(),
                NextFrame::Stream => {
                    if self.decompress_arriving()? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Returns a permit for a declared frame, if another thread may decompress it.
    fn permit(&mut self, header: &ZstdHeader, len: u64) -> Option<FramePermit> {
        let is_usual = FRAME_LENS.contains(&len)
            && len <= self.left
            && header.window <= 1 << self.window_log
            && !header.has_dictionary;
        // A thread for the only frame would not be faster.
        let has_others = !self.results.is_empty() || len < self.left;
        let has_thread = self.waiting.threads() > 0 || self.cores.count() > 0;
        if !(is_usual && has_others && has_thread) {
            return None;
        }
        let needed = len + compressed_len_max(len);
        let permit = self.budget.try_acquire_frame(needed);
        permit.or_else(|| {
            self.spare = None;
            self.budget.try_acquire_frame(needed)
        })
    }

    /// Reads a piece of the body.
    fn read(&mut self) -> io::Result<()> {
        let input = self.body.fill_buf()?;
        if input.is_empty() {
            if self.arriving.bytes.is_empty() {
                self.next = NextFrame::None;
            } else {
                // The stream fails at the end of the body.
                self.begin_stream();
            }
            return Ok(());
        }
        let (len, arrived) = self.arriving.push(input);
        self.body.consume(len);
        match (arrived, &self.next) {
            (Arrived::Frame, NextFrame::Collected(..)) => self.end_frame(),
            (Arrived::Header(header), _) => {
                let len = header.contents_len;
                self.next = len.map_or(NextFrame::Stream, |len| NextFrame::Declared(header, len));
            }
            (Arrived::Part, NextFrame::Collected(_, len))
                if self.arriving.bytes.len() as u64 > compressed_len_max(*len) =>
            {
                self.begin_stream();
            }
            (Arrived::Part, _) => {}
            (Arrived::Unknown | Arrived::Frame, _) => self.begin_stream(),
        }
        Ok(())
    }

    /// Gives up collecting the arriving frame. The bytes that it has keep their permit.
    fn begin_stream(&mut self) {
        if let NextFrame::Collected(permit, _) = mem::replace(&mut self.next, NextFrame::Stream) {
            self.early_permit = Some(permit);
        }
    }

    /// Passes the collected frame to the threads.
    fn end_frame(&mut self) {
        let compressed = mem::take(&mut self.arriving).bytes;
        let NextFrame::Collected(mut permit, len) =
            mem::replace(&mut self.next, NextFrame::Unknown)
        else {
            return;
        };
        permit.shrink(len + compressed.len() as u64);
        self.left = self.left.saturating_sub(len);
        // The permit does not cover a larger buffer.
        let spare = self.spare.take().map(|spare| spare.bytes);
        let spare = spare.filter(|bytes| bytes.capacity() as u64 <= len);
        let contents = Contents {
            bytes: spare.unwrap_or_default(),
            permit: Some(permit),
        };
        let (result, receiver) = sync_channel(1);
        self.results.push_back(receiver);
        self.waiting.push(Frame {
            compressed,
            contents,
            len,
            result,
        });
        if self.waiting.threads() == 0 {
            self.start_thread();
        }
    }

    /// Starts another thread, if a core is idle. Returns whether there is one.
    fn start_thread(&mut self) -> bool {
        let core = self.cores.try_occupy();
        core.is_some_and(|core| self.waiting.start_thread(core))
    }

    /// Takes the result of the oldest frame. If it is not ready, there are too few threads.
    fn take_result(&mut self) -> io::Result<bool> {
        let Some(receiver) = self.results.pop_front() else {
            return Ok(false);
        };
        let result = match receiver.try_recv() {
            Ok(result) => result,
            Err(_) => {
                if self.waiting.has_waiting() && !self.start_thread() {
                    self.waiting.decompress_one()?;
                }
                let lost = |_| io::Error::other("the thread of a frame has panicked");
                receiver.recv().map_err(lost)?
            }
        };
        self.set_current(result?);
        Ok(true)
    }

    fn set_current(&mut self, contents: Contents) {
        let old = mem::replace(&mut self.current, contents);
        self.consumed = 0;
        if old.permit.is_some() {
            self.spare = Some(old);
        }
    }

    /// Decompresses a piece of the arriving frame. Returns whether there is output.
    fn decompress_arriving(&mut self) -> io::Result<bool> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let early = mem::take(&mut self.arriving).bytes;
                self.set_current(Contents::default());
                self.stream.insert(ZstdStream::new(early, self.window_log)?)
            }
        };
        let output = &mut self.current.bytes;
        self.consumed = 0;
        if stream.decompress(&mut self.body, output, PIECE_LEN)? {
            self.stream = None;
            self.early_permit = None;
            self.next = NextFrame::Unknown;
        }
        let len = self.current.bytes.len();
        self.left = self.left.saturating_sub(len as u64);
        Ok(len > 0)
    }
}

impl<R: BufRead> BufRead for ZstdDecoder<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.consumed == self.current.bytes.len() && !self.advance()? {
            return Ok(&[]);
        }
        let rest = &self.current.bytes[self.consumed..];
        Ok(&rest[..rest.len().min(PIECE_LEN)])
    }

    fn consume(&mut self, len: usize) {
        self.consumed += len;
    }
}

impl<R: BufRead> Read for ZstdDecoder<'_, R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(output)?;
        self.consume(len);
        Ok(len)
    }
}

/// Returns the largest length of a compressed frame that is collected. A longer one is a stream.
fn compressed_len_max(contents_len: u64) -> u64 {
    contents_len + contents_len / 64 + 64
}

/// The lengths of frames that are worth a thread, in bytes. Nix and floe write frames of 16 MiB.
const FRAME_LENS: std::ops::RangeInclusive<u64> = 128 * 1024..=32 * 1024 * 1024;

/// The length of the pieces that the caller gets, in bytes. They fit into the second-level cache.
const PIECE_LEN: usize = 128 * 1024;

#[cfg(test)]
mod tests;
