//! Zstandard bodies of several frames, which several cores compress at once.
//!
//! The frames are independent, and each has the length of its contents in its header (RFC 8878,
//! section 3.1.1), so that a client can decompress them at once, too. Nix 2.35 writes frames of the
//! same length.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use floe_hash::idle_cores::{BusyCore, IdleCores};
use parking_lot::Mutex;
use zstd::bulk::Compressor;

use super::Encoder;

/// Compresses frames on idle cores and on the calling thread.
pub struct ZstdFrames<W> {
    output: W,
    compressor: Compressor<'static>,
    level: i32,
    cores: Arc<IdleCores>,
    /// A core for the next frame. Threads that hash what the caller and the encoder write are busy
    /// at the end of each frame, and idle while the caller compresses one.
    next_core: Option<BusyCore>,
    /// The contents of the next frame.
    contents: Vec<u8>,
    /// The frames that no thread compresses yet, the oldest one first.
    waiting: Arc<Mutex<VecDeque<Frame>>>,
    /// The results for the frames that were not written yet.
    results: VecDeque<Receiver<io::Result<Compressed>>>,
    /// A buffer to use again: new memory costs time.
    spare: Option<Vec<u8>>,
    has_frames: bool,
    threads: Vec<JoinHandle<()>>,
}

/// A frame that is to be compressed.
struct Frame {
    contents: Vec<u8>,
    result: SyncSender<io::Result<Compressed>>,
}

/// A compressed frame, and its contents.
struct Compressed {
    frame: Vec<u8>,
    contents: Vec<u8>,
}

impl Frame {
    fn compress(self, compressor: &mut Compressor<'_>) {
        let Frame { contents, result } = self;
        let frame = compressor.compress(&contents);
        let compressed = frame.map(|frame| Compressed { frame, contents });
        // The encoder is gone after an error.
        let _: Result<(), _> = result.send(compressed);
    }
}

impl<W: Write> ZstdFrames<W> {
    /// Makes an encoder that writes to `output`.
    ///
    /// Errors: zstd gets no memory.
    pub fn new(output: W, level: Option<i32>, cores: Arc<IdleCores>) -> io::Result<ZstdFrames<W>> {
        let level = super::zstd_level(level);
        Ok(ZstdFrames {
            output,
            compressor: Compressor::new(level)?,
            level,
            cores,
            next_core: None,
            contents: Vec::with_capacity(ZSTD_FRAME_LEN),
            waiting: Arc::default(),
            results: VecDeque::new(),
            spare: None,
            has_frames: false,
            threads: Vec::new(),
        })
    }

    fn end_frame(&mut self) -> io::Result<()> {
        let (result, receiver) = sync_channel(1);
        let contents = std::mem::take(&mut self.contents);
        self.waiting.lock().push_back(Frame { contents, result });
        self.results.push_back(receiver);
        self.has_frames = true;
        let core = self.next_core.take();
        if let Some(core) = core.or_else(|| self.cores.try_occupy()) {
            self.start_thread(core);
        }
        // One waits for a thread that ends its frame, if there is a thread.
        let waiting_max = usize::from(Arc::strong_count(&self.waiting) > 1);
        while self.waiting.lock().len() > waiting_max && self.compress_waiting() {}
        // Without this limit, many frames would collect behind a slow one.
        let threads = Arc::strong_count(&self.waiting) - 1;
        self.write_frames((threads * 2).min(FRAMES_MAX))?;
        let spare = self.spare.take();
        self.contents = spare.unwrap_or_else(|| Vec::with_capacity(ZSTD_FRAME_LEN));
        Ok(())
    }

    /// Starts a thread that compresses frames until none waits. Without the thread, the calling one
    /// compresses them.
    fn start_thread(&mut self, core: BusyCore) {
        let Ok(mut compressor) = Compressor::new(self.level) else {
            return;
        };
        let waiting = self.waiting.clone();
        let compress = move || {
            let _core = core;
            loop {
                let next = waiting.lock().pop_front();
                match next {
                    Some(frame) => frame.compress(&mut compressor),
                    None => return,
                }
            }
        };
        self.threads.retain(|thread| !thread.is_finished());
        let thread = thread::Builder::new().name("floe-zstd".into());
        self.threads.extend(thread.spawn(compress));
    }

    /// Compresses the oldest frame that waits. Returns whether there was one.
    fn compress_waiting(&mut self) -> bool {
        let next = self.waiting.lock().pop_front();
        let was_waiting = next.is_some();
        if let Some(frame) = next {
            frame.compress(&mut self.compressor);
            if Arc::strong_count(&self.waiting) == 1 {
                self.next_core = self.cores.try_occupy();
            }
        }
        was_waiting
    }

    /// Writes the frames that are compressed, until at most `len_max` others are left.
    fn write_frames(&mut self, len_max: usize) -> io::Result<()> {
        while let Some(result) = self.results.front() {
            let result = match result.try_recv() {
                Ok(result) => result,
                Err(TryRecvError::Empty) if self.results.len() <= len_max => return Ok(()),
                Err(TryRecvError::Empty) if self.compress_waiting() => continue,
                _ => match self.results.front().map(Receiver::recv) {
                    Some(Ok(result)) => result,
                    _ => return Err(io::Error::other("the thread of a frame has panicked")),
                },
            };
            self.results.pop_front();
            let Compressed {
                frame,
                mut contents,
            } = result?;
            self.output.write_all(&frame)?;
            contents.clear();
            self.spare = Some(contents);
        }
        Ok(())
    }
}

impl<W: Write> Write for ZstdFrames<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.contents.len() == ZSTD_FRAME_LEN {
            self.end_frame()?;
        }
        let len = bytes.len().min(ZSTD_FRAME_LEN - self.contents.len());
        self.contents.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// Keeps the contents of the frame that is not full.
    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl<W: Write> Encoder for ZstdFrames<W> {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if !self.contents.is_empty() || !self.has_frames {
            self.end_frame()?;
        }
        self.write_frames(0)?;
        self.output.flush()
    }
}

impl<W> Drop for ZstdFrames<W> {
    /// Waits for the threads, each of which may have begun with a frame.
    fn drop(&mut self) {
        self.waiting.lock().clear();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has sent no result.
            let _: thread::Result<()> = thread.join();
        }
    }
}

/// The length of the contents of a frame, in bytes; only the last one is shorter.
pub const ZSTD_FRAME_LEN: usize = 16 * 1024 * 1024;

/// How many frames of a body are in memory at once, each with up to twice its length.
const FRAMES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(contents: &[u8], count: usize) -> Vec<u8> {
        let mut output = Vec::new();
        let cores = Arc::new(IdleCores::new(count));
        let mut encoder = ZstdFrames::new(&mut output, None, cores.clone()).unwrap();
        // Pieces that do not divide the length of a frame.
        for piece in contents.chunks(999_983) {
            encoder.write_all(piece).unwrap();
        }
        Box::new(encoder).finish().unwrap();
        assert_eq!(cores.count(), count as isize);
        output
    }

    #[test]
    fn frames_are_equal_on_any_number_of_cores() {
        let contents: Vec<u8> = (0..10_000_000_u32)
            .flat_map(|number| (number / 3).to_le_bytes())
            .collect();
        let alone = encode(&contents, 0);
        assert_eq!(zstd::decode_all(&*alone).unwrap(), contents);
        for cores in [1, 3, 40] {
            assert!(encode(&contents, cores) == alone, "{cores} cores");
        }
        let mut lens = Vec::new();
        let mut rest = &*alone;
        while !rest.is_empty() {
            lens.push(
                zstd::zstd_safe::get_frame_content_size(rest)
                    .unwrap()
                    .unwrap(),
            );
            let len = zstd::zstd_safe::find_frame_compressed_size(rest).unwrap();
            rest = &rest[len..];
        }
        let full = ZSTD_FRAME_LEN as u64;
        assert_eq!(lens, [full, full, 40_000_000 - 2 * full]);
    }

    #[test]
    fn core_that_is_busy_at_the_end_of_each_frame_is_used() {
        let cores = Arc::new(IdleCores::new(1));
        let mut encoder = ZstdFrames::new(Vec::new(), None, cores.clone()).unwrap();
        let (result, _receiver) = sync_channel(1);
        let contents = vec![1; 1000];
        encoder.waiting.lock().push_back(Frame { contents, result });
        assert!(encoder.compress_waiting());
        let hash = cores.occupy();
        encoder.write_all(&vec![1; ZSTD_FRAME_LEN + 1]).unwrap();
        assert_eq!(encoder.threads.len(), 1);
        drop(hash);
        Box::new(encoder).finish().unwrap();
        assert_eq!(cores.count(), 1);
    }

    #[test]
    fn empty_contents_are_one_frame() {
        let body = encode(&[], 1);
        assert!(!body.is_empty());
        assert_eq!(zstd::decode_all(&*body).unwrap(), b"");
    }
}
