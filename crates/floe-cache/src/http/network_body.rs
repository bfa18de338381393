//! The body of a request, which its worker reads from a bounded channel: a slow worker slows the
//! transfer down.

use bytes::Bytes;
use floe_transfer::{ChunkSource, Error, NextChunk};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;

/// A part of a body.
#[derive(Debug)]
pub(super) enum Chunk {
    /// The next bytes, with the permission to keep them in memory before the worker reads them, if
    /// the network limits that.
    Bytes(Bytes, Option<OwnedSemaphorePermit>),
    /// The end. A body without it is incomplete.
    End,
    /// The transfer failed.
    Failed(Error),
}

/// A body that the network fetches.
#[derive(Debug)]
pub(super) struct NetworkBody {
    /// The chunks of the body, then [`Chunk::End`] or [`Chunk::Failed`].
    pub(super) chunks: Receiver<Chunk>,
    /// The URL without credentials, for messages.
    pub(super) url: String,
    /// Permission to hold a connection before a worker reads from it, if the network limits that.
    pub(super) prefetch_permit: Option<OwnedSemaphorePermit>,
}

impl ChunkSource for NetworkBody {
    fn begin(&mut self) {
        // Another body may be prefetched.
        self.prefetch_permit = None;
    }

    fn try_next(&mut self) -> Option<NextChunk> {
        let chunk = self.chunks.try_recv().ok()?;
        Some(self.next(Some(chunk)))
    }

    fn wait_for_next(&mut self) -> NextChunk {
        let chunk = self.chunks.blocking_recv();
        self.next(chunk)
    }
}

impl NetworkBody {
    fn next(&self, chunk: Option<Chunk>) -> NextChunk {
        match chunk {
            Some(Chunk::Bytes(bytes, permit)) => {
                // Other bytes may wait in memory now.
                drop(permit);
                Ok(Some(bytes))
            }
            Some(Chunk::End) => Ok(None),
            Some(Chunk::Failed(error)) => Err(error),
            None => Err(Error::fetch(&self.url, "the transfer was abandoned", false)),
        }
    }
}
