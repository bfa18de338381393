//! The body of a request that a connection receives.

use std::time::{Duration, Instant};

use super::receiving::{BodyProgress, Receiving};
use super::state::{NextStep, ReadSide, State};
use super::{Connection, ThreadContext};
use crate::config::Limits;
use crate::finish::access_log::LoggedRequest;
use crate::handlers::received::object_of;
use crate::http::refusal::Refusal;
use crate::http::request::{Method, Request};
use crate::http::request_body::{BodyPart, BodyReader, Framing};
use crate::http::response::{AfterResponse, Response};
use crate::http::route::Route;
use crate::net::transport::{Received, WriteHint};
use crate::receive::{Condition, Object, PushScope, ReceiveError, ReceiveErrorKind, UploadRequest};

impl Connection {
    /// Begins to receive the body of a request, or returns the response that refuses it.
    pub(super) fn begin_upload(
        &mut self,
        request: &Request<'_>,
        route: &Route,
        thread: &ThreadContext<'_>,
    ) -> Result<Box<Receiving>, Response> {
        if thread.context.receiver.is_none() {
            return Err(Response::refused(Refusal::MethodNotAllowed));
        }
        let object = object_of(route).ok_or(Response::refused(Refusal::NotReceived))?;
        let is_deletion = request.method == Method::Delete;
        if is_deletion && !matches!(object, Object::Pin(_)) {
            return Err(Response::refused(Refusal::NotReceived));
        }
        let has_no_end = match request.body {
            Framing::None => !is_deletion,
            framing => framing == Framing::Unknown,
        };
        if has_no_end || request.has_encoded_body {
            return Err(Response::refused(Refusal::UnsupportedBody));
        }
        let len = match request.body {
            Framing::Length(len) => Some(len),
            _ => None,
        };
        self.reset_rate(thread.now);
        let login = self.login.login();
        let has_log = thread.finisher.keeps_requests();
        self.deadline = thread.now + thread.limits.read_timeout;
        Ok(Box::new(Receiving {
            body: BodyReader::new(request.body),
            request: UploadRequest {
                object,
                is_deletion,
                condition: condition(request),
                len,
                user: login
                    .map(|login| login.name().to_owned())
                    .unwrap_or_default(),
                may_push: login.map_or_else(PushScope::default, |login| login.may_push.clone()),
            },
            upload: None,
            must_continue: request.expects_continue && !request.is_http10,
            route: route.kind(),
            mode: thread.mode(request),
            received: thread.now,
            logged: has_log.then(|| LoggedRequest::new(request).into_owned()),
            after_response: self.after_body(request, thread),
        }))
    }

    /// Returns what a connection waits for whose body is received.
    pub(super) fn await_body(&mut self, thread: &ThreadContext<'_>) -> NextStep {
        // A worker often has the connection of a slow client when the thread looks at all others.
        let slow = self.observe_rate(thread.now, thread.limits);
        if slow.is_some_and(|slow| slow >= thread.limits.write_timeout) {
            return NextStep::Close;
        }
        if !self.output.is_empty() {
            match self.output.send(&mut self.transport, WriteHint::Last) {
                Ok(true) => {}
                Ok(false) => return NextStep::AwaitSocket,
                Err(_) => return NextStep::Close,
            }
        }
        // Bytes that a worker has left in the input are an incomplete line.
        let is_new =
            matches!(&self.state, State::Receiving(receiving) if receiving.upload.is_none());
        if is_new {
            return NextStep::AwaitWorker;
        }
        // A connection that a worker returns counts as ready, although the worker has read all.
        if self.read_side == ReadSide::Ready && !self.transport.is_readable(Duration::ZERO) {
            self.read_side = ReadSide::Drained;
        }
        match self.read_side {
            ReadSide::Eof => NextStep::Close,
            ReadSide::Drained => NextStep::AwaitSocket,
            ReadSide::Ready | ReadSide::HungUp => NextStep::AwaitWorker,
        }
    }

    /// Returns how long the client has been slow.
    pub(super) fn observe_rate(&mut self, now: Instant, limits: &Limits) -> Option<Duration> {
        let moved = self.moved();
        self.receive_rate.observe(now, moved, limits.rate_min)
    }

    pub(super) fn reset_rate(&mut self, now: Instant) {
        let moved = self.moved();
        self.receive_rate.reset(now, moved);
    }

    /// Returns the number of bytes of both directions, of which only one moves at a time.
    fn moved(&self) -> u64 {
        self.transport.sent + self.body_received
    }

    /// Tells the client to send the body, if it waits for that.
    pub(crate) fn continue_upload(&mut self, receiving: &mut Receiving) {
        if std::mem::take(&mut receiving.must_continue) {
            self.output.extend(b"HTTP/1.1 100 Continue\r\n\r\n");
            // If the socket takes nothing now, the network thread sends it.
            let _: rustix::io::Result<bool> =
                self.output.send(&mut self.transport, WriteHint::Last);
        }
    }

    /// Returns how many bytes of bodies the connection has received.
    pub(crate) fn body_received(&self) -> u64 {
        self.body_received
    }

    /// Notes that the whole body was read, so that another request may follow it.
    pub(crate) fn finish_body(&mut self, receiving: &Receiving, is_stopping: bool) {
        self.after_response = match receiving.after_response {
            AfterResponse::KeepAlive if is_stopping => AfterResponse::Close,
            after => after,
        };
    }

    /// Passes the bytes that have come to the upload, and reads one piece more if that is not all.
    /// A client that sends without a pause keeps the worker for no longer than that.
    ///
    /// Errors: those of the upload; the bytes are no body.
    pub(crate) fn receive_body(
        &mut self,
        receiving: &mut Receiving,
    ) -> Result<BodyProgress, ReceiveError> {
        let mut is_complete = self.take_body(receiving)?;
        if !is_complete && matches!(self.read_side, ReadSide::Ready | ReadSide::HungUp) {
            let received = self.transport.read_up_to(&mut self.input, BODY_READ_LEN);
            self.read_side = self.read_side.after_read(received);
            if let Received::Bytes { len, .. } = received {
                self.body_received += len as u64;
            }
            is_complete = self.take_body(receiving)?;
        }
        Ok(match self.read_side {
            _ if is_complete => BodyProgress::Complete,
            ReadSide::Eof => BodyProgress::Closed,
            _ => BodyProgress::Incomplete,
        })
    }

    /// Waits a moment for more of a body. Returns whether there is any.
    pub(crate) fn has_more_body(&mut self, wait: Duration) -> bool {
        let is_readable = self.transport.is_readable(wait);
        if is_readable && self.read_side == ReadSide::Drained {
            self.read_side = ReadSide::Ready;
        }
        is_readable
    }

    /// Passes the bytes in the input to the upload. Returns whether the body is complete.
    fn take_body(&mut self, receiving: &mut Receiving) -> Result<bool, ReceiveError> {
        let mut input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        let taken = loop {
            match receiving.body.next(&mut rest) {
                Ok(BodyPart::Bytes(bytes)) => {
                    let written = receiving.upload.as_mut().map(|upload| upload.write(bytes));
                    if let Some(Err(error)) = written {
                        break Err(error);
                    }
                }
                Ok(BodyPart::End) => break Ok(true),
                Ok(BodyPart::Incomplete) => break Ok(false),
                Err(_) => {
                    let kind = ReceiveErrorKind::Invalid;
                    break Err(ReceiveError::new(kind, "the body is no list of chunks"));
                }
            }
        };
        let used = input.len() - rest.len();
        input.drain(..used);
        // An idle connection keeps no large buffer.
        if !input.is_empty() || !matches!(taken, Ok(true)) {
            self.input = input;
        }
        taken
    }
}

/// Returns what a request says about the present object. `If-None-Match` with a list of versions
/// counts as `*`, and `If-Match` with one names no version that there is.
fn condition(request: &Request<'_>) -> Condition {
    match (request.if_match, request.if_none_match) {
        (None, None) => Condition::Any,
        (Some("*"), None) => Condition::Present,
        (None, Some(_)) => Condition::Absent,
        (Some(etag), _) => Condition::Version(etag.trim_matches('"').to_owned()),
    }
}

/// How much of a body is read at once.
const BODY_READ_LEN: usize = 256 * 1024;
