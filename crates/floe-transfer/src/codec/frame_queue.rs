//! The frames of a body between the decoder and the threads that decompress them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};

use floe_hash::idle_cores::BusyCore;
use parking_lot::{Condvar, Mutex};
use zstd::bulk::Decompressor;

use super::budget::FramePermit;

/// A whole frame.
pub(super) struct Frame {
    pub(super) compressed: Vec<u8>,
    /// Receives the contents.
    pub(super) contents: Contents,
    /// The length of the contents, in bytes.
    pub(super) len: u64,
    pub(super) result: SyncSender<io::Result<Contents>>,
}

/// Contents, and the permit for their memory. The few contents of a stream have none.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    pub(super) permit: Option<FramePermit>,
}

/// The frames that no thread decompresses yet, the oldest one first. Dropping the queue waits for
/// the end of its threads, each of which may have begun with a frame.
#[derive(Default)]
pub(super) struct FrameQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Frame>,
    has_ended: bool,
}

impl FrameQueue {
    /// The number of threads.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    pub(super) fn push(&self, frame: Frame) {
        self.shared.state.lock().frames.push_back(frame);
        self.shared.changed.notify_one();
    }

    /// Decompresses the oldest frame on the calling thread, if there is one.
    ///
    /// Errors: zstd gets no memory.
    pub(super) fn decompress_one(&self) -> io::Result<()> {
        let frame = self.shared.state.lock().frames.pop_front();
        if let Some(frame) = frame {
            frame.decompress(&mut Decompressor::new()?);
        }
        Ok(())
    }

    /// Whether a frame waits for a thread.
    pub(super) fn has_waiting(&self) -> bool {
        !self.shared.state.lock().frames.is_empty()
    }

    /// Starts a thread that decompresses frames on a core. Returns `false` if the system refuses
    /// it.
    pub(super) fn start_thread(&mut self, core: BusyCore) -> bool {
        let Ok(mut decompressor) = Decompressor::new() else {
            return false;
        };
        let shared = self.shared.clone();
        let run = move || {
            let _core = core;
            while let Some(frame) = shared.next() {
                frame.decompress(&mut decompressor);
            }
        };
        let started = thread::Builder::new().name("floe-zstd".into()).spawn(run);
        let has_started = started.is_ok();
        self.threads.extend(started);
        has_started
    }
}

impl Drop for FrameQueue {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.has_ended = true;
        state.frames.clear();
        self.shared.changed.notify_all();
        drop(state);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has sent no result.
            let _: thread::Result<()> = thread.join();
        }
    }
}

impl Shared {
    /// Waits for the next frame.
    fn next(&self) -> Option<Frame> {
        let mut state = self.state.lock();
        let is_idle = |state: &mut State| state.frames.is_empty() && !state.has_ended;
        self.changed.wait_while(&mut state, is_idle);
        state.frames.pop_front()
    }
}

impl Frame {
    fn decompress(self, decompressor: &mut Decompressor<'_>) {
        let Frame {
            compressed,
            mut contents,
            len,
            result,
        } = self;
        contents.bytes.clear();
        let len_usize = usize::try_from(len).map_err(io::Error::other);
        let decompressed = len_usize.and_then(|len| {
            contents.bytes.reserve_exact(len);
            decompressor.decompress_to_buffer(&compressed, &mut contents.bytes)
        });
        drop(compressed);
        if let Some(permit) = &mut contents.permit {
            permit.shrink(len);
        }
        // The decoder is gone after an error.
        let _: Result<(), _> = result.send(decompressed.map(|_| contents));
    }
}
