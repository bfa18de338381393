//! The body of a request, which its worker reads from a bounded channel: a slow worker slows the
//! transfer down.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

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

    fn wait_within(&mut self, time: Duration) -> Option<NextChunk> {
        let began = Instant::now();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            // A timer of the network would wake its thread for each wait.
            if let Poll::Ready(chunk) = self.chunks.poll_recv(&mut context) {
                return Some(self.next(chunk));
            }
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

/// Wakes a worker.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::*;

    #[test]
    fn wait_ends_with_a_chunk_or_with_its_time() {
        let (sender, chunks) = channel(1);
        let mut body = NetworkBody {
            chunks,
            url: String::new(),
            prefetch_permit: None,
        };
        let short = Duration::from_millis(1);
        assert!(body.wait_within(short).is_none());
        let long = Duration::from_secs(60);
        thread::scope(|scope| {
            scope.spawn(|| sender.blocking_send(Chunk::Bytes(Bytes::from_static(b"a"), None)));
            let next = body.wait_within(long).unwrap().unwrap();
            assert_eq!(next.as_deref(), Some(&b"a"[..]));
        });
        drop(sender);
        assert!(body.wait_within(long).unwrap().is_err());
    }
}
