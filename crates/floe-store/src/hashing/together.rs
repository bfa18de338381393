//! A stream in a lane: one buffer is being filled, the other waits or is hashed.

use std::mem;
use std::sync::Arc;

use floe_hash::lanes::Lane;

use super::crew::{Crew, Job};
use super::fill;

#[derive(Debug)]
pub(super) struct Together {
    crew: Arc<Crew>,
    seat: usize,
    number: u64,
    buffer_len: usize,
    filling: Vec<u8>,
    /// The lane and the other buffer, unless they are away.
    spare: Option<(Lane, Vec<u8>)>,
}

impl Together {
    /// A stream of the thread that has this seat, handed in by buffers of this length.
    pub(super) fn new(crew: &Arc<Crew>, seat: usize, buffer_len: usize) -> Together {
        Together {
            crew: Arc::clone(crew),
            seat,
            number: crew.number_stream(),
            buffer_len,
            filling: Vec::new(),
            spare: Some((Lane::default(), Vec::new())),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        let mut filling = mem::take(&mut self.filling);
        fill(&mut filling, self.buffer_len, bytes, |filling| {
            self.send(filling);
        });
        self.filling = filling;
    }

    /// Gives the filled buffer away and goes on with the other one.
    fn send(&mut self, filling: &mut Vec<u8>) {
        let (lane, mut bytes) = self.take_back();
        mem::swap(&mut bytes, filling);
        self.crew.add(Job {
            stream: self.number,
            seat: self.seat,
            lane,
            bytes,
        });
    }

    fn take_back(&mut self) -> (Lane, Vec<u8>) {
        self.spare.take().unwrap_or_else(|| {
            let job = self.crew.wait_for(self.seat, self.number);
            (job.lane, job.bytes)
        })
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        if !self.filling.is_empty() {
            let mut filling = mem::take(&mut self.filling);
            self.send(&mut filling);
        }
        let (lane, bytes) = self.take_back();
        self.spare = Some((Lane::default(), bytes));
        lane.finish()
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        // Nobody else would take the buffer out.
        if self.spare.is_none() {
            let _: Job = self.crew.wait_for(self.seat, self.number);
        }
    }
}
