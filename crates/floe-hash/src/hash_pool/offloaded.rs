//! A stream that a second thread hashes, so that a large message uses two cores.

use std::mem;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use crate::Sha256;

use super::{BUFFER_LEN, fill_buffers};

#[derive(Debug)]
pub(super) struct OffloadedStream {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    filling: Vec<u8>,
    thread: JoinHandle<Sha256>,
}

impl OffloadedStream {
    /// Starts the second thread. Returns `None` if the system refuses it.
    pub(super) fn start() -> Option<OffloadedStream> {
        let (full, to_hash) = mpsc::sync_channel::<Vec<u8>>(QUEUED_BUFFERS_MAX);
        let (return_buffer, empty) = mpsc::channel();
        let hash = move || {
            let mut hasher = Sha256::new();
            for mut buffer in to_hash {
                hasher.update(&buffer);
                buffer.clear();
                // At the end the stream does not need its buffers back.
                let _ = return_buffer.send(buffer);
            }
            hasher
        };
        let thread = thread::Builder::new().name("floe-hash".into()).spawn(hash);
        Some(OffloadedStream {
            full,
            empty,
            filling: Vec::new(),
            thread: thread.ok()?,
        })
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        let mut filling = mem::take(&mut self.filling);
        fill_buffers(&mut filling, BUFFER_LEN, bytes, |filling| {
            self.send(filling)
        });
        self.filling = filling;
    }

    /// Sends the filled buffer to the second thread, and continues with another one.
    fn send(&self, filling: &mut Vec<u8>) {
        let empty = self.empty.try_recv().unwrap_or_default();
        // The thread runs until this sender is dropped.
        let _ = self.full.send(mem::replace(filling, empty));
    }

    pub(super) fn finish(self) -> [u8; 32] {
        let _ = self.full.send(self.filling);
        drop(self.full);
        // The thread does not panic. If it did, the digest would match no message.
        self.thread.join().unwrap_or_default().finish()
    }
}

/// How many buffers the worker may be ahead of the second thread: 4 MiB of memory.
const QUEUED_BUFFERS_MAX: usize = 8;
