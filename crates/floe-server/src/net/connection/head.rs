//! The effects of the head of a request on its connection.

use super::{Connection, ThreadContext};
use crate::finish::{Finished, Subject, Summary};
use crate::http::refusal::Refusal;
use crate::http::request::{Request, ResponseMode};
use crate::http::request_body::Framing;
use crate::http::response::{AfterResponse, Response};
use crate::http::route_kind::RouteKind;

impl Connection {
    /// Refuses an invalid head. The connection ends after the response.
    pub(super) fn refuse(&mut self, head: &[u8], refusal: Refusal, thread: &mut ThreadContext<'_>) {
        self.after_response = AfterResponse::CloseUnread;
        let response = Response::refused(refusal);
        let mode = ResponseMode::default();
        thread.finisher.finish_response(&Finished {
            peer: self.peer.name(),
            user: None,
            route: RouteKind::Other,
            request: Subject::Invalid(head),
            summary: Summary::new(&response, mode, None),
            clock: thread.clock,
        });
        self.queue_response(response, mode, thread.clock);
    }

    /// Returns what follows the response to a request.
    pub(super) fn after(&self, request: &Request<'_>, thread: &ThreadContext<'_>) -> AfterResponse {
        // The bytes of a body that the server does not read must not be parsed as a request.
        match request.body {
            Framing::None => self.after_body(request, thread),
            _ => AfterResponse::CloseUnread,
        }
    }

    /// Returns what follows the response to a request whose body was read.
    pub(super) fn after_body(
        &self,
        request: &Request<'_>,
        thread: &ThreadContext<'_>,
    ) -> AfterResponse {
        let most = thread.limits.requests_per_connection_max;
        let is_last = thread.is_stopping
            || !thread.limits.keep_alive
            || most.is_some_and(|most| self.requests + 1 >= most.get());
        if request.keep_alive && !is_last {
            AfterResponse::KeepAlive
        } else {
            AfterResponse::Close
        }
    }
}
