//! The NAR of a path on its way from the reading thread to a worker.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};

use bytes::Bytes;
use floe_format::StorePath;
use floe_transfer::{Buffering, CANCEL_POLL, ChunkSource, Error, NextChunk};

use super::Shared;
use crate::error::RemoteError;

/// The end of a body on the side of the reading thread.
pub(super) struct NarFeed {
    path: StorePath,
    /// The bytes that may still follow, by the metadata of the path.
    left: u64,
    sender: SyncSender<NextChunk>,
    /// The bytes so far of a body that its worker gets as a whole, which is small.
    whole: Option<Vec<u8>>,
}

/// The body of a NAR, without compression.
#[derive(Debug)]
pub(crate) struct NarBody {
    chunks: Receiver<NextChunk>,
    shared: Arc<Shared>,
}

impl NarFeed {
    /// Makes a body. A large one holds only a few chunks, and the daemon waits for its worker.
    pub(super) fn new(
        (path, nar_size): (&StorePath, u64),
        buffering: Buffering,
        shared: Arc<Shared>,
    ) -> (NarFeed, NarBody) {
        let (sender, chunks) = mpsc::sync_channel(CHUNKS_MAX);
        let whole = match buffering {
            Buffering::Whole => Some(Vec::new()),
            Buffering::Stream => None,
        };
        let feed = NarFeed {
            path: path.clone(),
            left: match nar_size {
                0 => u64::MAX,
                size => size,
            },
            sender,
            whole,
        };
        (feed, NarBody { chunks, shared })
    }

    /// Adds the next bytes. Waits while the worker of a large body is slow. If the worker needs the
    /// body no longer, drops them. Returns `false` for more bytes than the metadata of the path
    /// says: the NAR may be endless.
    pub(super) fn add(&mut self, data: &[u8]) -> bool {
        let Some(left) = self.left.checked_sub(data.len() as u64) else {
            return false;
        };
        self.left = left;
        match &mut self.whole {
            Some(whole) => whole.extend_from_slice(data),
            None => self.send(Ok(Some(Bytes::copy_from_slice(data)))),
        }
        true
    }

    /// Ends the body of a NAR that the daemon cannot send.
    pub(super) fn fail_read(self, uri: &str, reason: String) {
        let error = RemoteError::Read {
            uri: uri.to_owned(),
            path: self.path.clone(),
            reason,
        };
        self.fail(error);
    }

    /// Ends a whole body.
    pub(super) fn end(mut self) {
        if let Some(whole) = self.whole.take() {
            self.send(Ok(Some(whole.into())));
        }
        self.send(Ok(None));
    }

    /// Ends a body that is not whole.
    pub(super) fn fail(self, error: RemoteError) {
        self.send(Err(error.into()));
    }

    fn send(&self, next: NextChunk) {
        // The worker may need the body no longer.
        let _: Result<(), _> = self.sender.send(next);
    }
}

impl ChunkSource for NarBody {
    fn try_next(&mut self) -> Option<NextChunk> {
        match self.chunks.try_recv() {
            Ok(next) => Some(next),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(self.ended())),
        }
    }

    fn wait_for_next(&mut self) -> NextChunk {
        loop {
            match self.chunks.recv_timeout(CANCEL_POLL) {
                Ok(next) => return next,
                Err(RecvTimeoutError::Timeout) if !self.shared.cancel.is_raised() => {}
                Err(RecvTimeoutError::Timeout) => return Err(Error::Cancelled),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }
}

impl NarBody {
    fn ended(&self) -> Error {
        RemoteError::Ended {
            uri: self.shared.name.clone(),
            reason: "the thread that reads its replies has ended".into(),
        }
        .into()
    }
}

/// The chunks of a large body that wait for its worker: at most 64 KiB each.
const CHUNKS_MAX: usize = 16;
