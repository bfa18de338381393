//! Takes back a response of which nothing was sent.

use super::Connection;
use crate::http::response::AfterResponse;

/// The state of a connection before a response was queued.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    waiting: usize,
    sent_ever: u64,
    after_response: AfterResponse,
}

impl Connection {
    /// Returns a point to which [`Connection::roll_back`] can return.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            waiting: self.output.len(),
            sent_ever: self.transport.sent,
            after_response: self.after_response,
        }
    }

    /// Drops what was queued since a checkpoint. Returns `false` if a part of it may be sent
    /// already, so that the client cannot be sent another response.
    pub(crate) fn roll_back(&mut self, to: &Checkpoint) -> bool {
        if self.transport.sent != to.sent_ever || self.transport.has_encrypted() {
            return false;
        }
        self.output.truncate(to.waiting);
        self.after_response = to.after_response;
        true
    }
}
