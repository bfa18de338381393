//! A stream in a lane. It fills one buffer while the other one is pending or hashed.

use std::mem;
use std::sync::Arc;

use crate::lanes::Lane;

use super::fill_buffers;
use super::scheduler::{LaneScheduler, PendingBuffer};

#[derive(Debug)]
pub(super) struct BatchedStream {
    scheduler: Arc<LaneScheduler>,
    slot: usize,
    stream_id: u64,
    buffer_len: usize,
    filling: Vec<u8>,
    /// The lane and the other buffer, unless the scheduler has them.
    spare: Option<(Lane, Vec<u8>)>,
}

impl BatchedStream {
    /// Makes a stream of the worker with this slot.
    pub(super) fn new(
        scheduler: &Arc<LaneScheduler>,
        slot: usize,
        buffer_len: usize,
    ) -> BatchedStream {
        BatchedStream {
            scheduler: Arc::clone(scheduler),
            slot,
            stream_id: scheduler.next_stream_id(),
            buffer_len,
            filling: Vec::new(),
            spare: Some((Lane::default(), Vec::new())),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        let mut filling = mem::take(&mut self.filling);
        fill_buffers(&mut filling, self.buffer_len, bytes, |filling| {
            self.send(filling);
        });
        self.filling = filling;
    }

    /// Submits the filled buffer, and continues with the other one.
    fn send(&mut self, filling: &mut Vec<u8>) {
        let (lane, mut bytes) = self.reclaim();
        mem::swap(&mut bytes, filling);
        self.scheduler.submit(PendingBuffer {
            stream: self.stream_id,
            slot: self.slot,
            lane,
            bytes,
        });
    }

    fn reclaim(&mut self) -> (Lane, Vec<u8>) {
        self.spare.take().unwrap_or_else(|| {
            let buffer = self.scheduler.wait_for_buffer(self.slot, self.stream_id);
            (buffer.lane, buffer.bytes)
        })
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        if !self.filling.is_empty() {
            let mut filling = mem::take(&mut self.filling);
            self.send(&mut filling);
        }
        let (lane, bytes) = self.reclaim();
        self.spare = Some((Lane::default(), bytes));
        lane.finish()
    }
}

impl Drop for BatchedStream {
    fn drop(&mut self) {
        // The scheduler would keep the buffer forever.
        if self.spare.is_none() {
            let _: PendingBuffer = self.scheduler.wait_for_buffer(self.slot, self.stream_id);
        }
    }
}
