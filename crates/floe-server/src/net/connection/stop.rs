//! A connection of a server that stops.

use std::time::{Duration, Instant};

use super::Connection;
use super::state::{NextStep, ReadSide, State};
use crate::http::response::AfterResponse;

impl Connection {
    /// Closes an idle connection when the server stops. Others are closed after their response.
    ///
    /// A client sends its request again if a connection ends that has had a response before. So
    /// only a new connection, or one whose request has come, is not idle.
    pub(crate) fn stop(&mut self, now: Instant) -> NextStep {
        let is_new = self.transport.sent == 0;
        if self.is_receiving() && (is_new || self.transport.is_readable(Duration::ZERO)) {
            self.reads_last_request = true;
            self.deadline = self.deadline.min(now + LAST_REQUEST_TIME);
            if self.read_side == ReadSide::Drained && !is_new {
                self.read_side = ReadSide::Ready;
            }
            return NextStep::Requeue;
        }
        if self.after_response == AfterResponse::KeepAlive {
            self.after_response = AfterResponse::Close;
        }
        match self.state {
            State::Idle | State::ReadingHead | State::Draining => NextStep::Close,
            State::Verifying(_) | State::Deferred(_) | State::Receiving(_) | State::Sending(_) => {
                NextStep::AwaitSocket
            }
        }
    }
}

/// How long a stopping server waits for the first request of a new connection: some round trips.
const LAST_REQUEST_TIME: Duration = Duration::from_secs(1);
