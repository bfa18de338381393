//! A stream that a second thread hashes, so that a large message uses two cores.

use std::mem;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};

use crate::Sha256;
use crate::idle_cores::BusyCore;

use super::{BUFFER_LEN, fill_buffers};

#[derive(Debug)]
pub(super) struct OffloadedStream {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    filling: Vec<u8>,
    thread: JoinHandle<Sha256>,
}

impl OffloadedStream {
    /// Starts the second thread, which continues with `hasher`. Returns `None` if the system
    /// refuses it.
    pub(super) fn start(hasher: Sha256, core: BusyCore) -> Option<OffloadedStream> {
        let (full, to_hash) = mpsc::sync_channel(QUEUED_BUFFERS_MAX);
        let (return_buffer, empty) = mpsc::channel();
        let hash = move || hash_buffers(hasher, core, &to_hash, &return_buffer);
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

/// Hashes buffers until there are no more. While the thread waits, its core is idle.
fn hash_buffers(
    mut hasher: Sha256,
    core: BusyCore,
    to_hash: &Receiver<Vec<u8>>,
    return_buffer: &Sender<Vec<u8>>,
) -> Sha256 {
    let idle_cores = core.idle_cores().clone();
    let mut core = Some(core);
    loop {
        let next = to_hash.try_recv().or_else(|_| {
            drop(core.take());
            let next = to_hash.recv();
            core = Some(idle_cores.occupy());
            next
        });
        let Ok(mut buffer) = next else {
            return hasher;
        };
        hasher.update(&buffer);
        buffer.clear();
        // At the end the stream does not need its buffers back.
        let _ = return_buffer.send(buffer);
    }
}

/// How many buffers the worker may be ahead of the second thread: 4 MiB of memory.
const QUEUED_BUFFERS_MAX: usize = 8;
