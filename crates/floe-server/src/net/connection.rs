//! One client's connection: reads requests, responds, and decides what to wait for.
//!
//! ```text
//!   Admit, after the PROXY header of a trusted proxy
//!          │
//!          ▼   first byte               whole head
//!      ┌─ Idle ──────────▶ ReadingHead ───────────┐
//!      │   ▲                                      ▼       password
//!      │   │                                check_login ─────────▶ Verifying
//!      │   │                                      │      ◀─────────
//!      │   │                                      ▼        result
//!      │   │                            try_respond (network thread)
//!      │   │                              │               │
//!      │   │                     response │               │ needs files or has to wait
//!      │   │ sent, keep-alive             ▼               ▼
//!      │   └────────────────────────── Sending ◀────── Deferred
//!      │                                  │     a worker responds
//!      │ peer closed, timeout             │ sent, last response
//!      ▼                                  ▼
//!   closed ◀─────────────────────────  Draining (only while the client still sends)
//! ```
//!
//! - [`NextStep::Admit`] is not a state. The network thread counts the client that the header
//!   names, and refuses a client that has too many connections.
//! - `Idle` and `ReadingHead` belong to the network thread. Requests that the client has pipelined
//!   are processed in one go: their responses gather in the write buffer.
//! - `Verifying` lends the connection to the thread that verifies passwords. The head of the
//!   request stays in the input, and is processed again with the result.
//! - `Deferred` lends the connection to a worker, which computes the response, begins to send it,
//!   and returns the connection in `Sending`.
//! - `Receiving` takes the body of a `PUT`, or a `DELETE`. It lends the connection to a worker
//!   whenever bytes have come. The worker passes them on, and sends the response after the last
//!   one.
//! - `Sending` without a body is sent by the network thread. With a body, the network thread
//!   empties the write buffer, waits until the socket takes bytes, and lends the connection to a
//!   worker again.
//! - `Draining` discards what the client still sends. To close at once would make the client's
//!   kernel throw away the response that the client has not read yet.
//!
//! Three things are independent of the state: what is known about the receiving side
//! ([`ReadSide`]), whether the connection stays open after the response ([`AfterResponse`]), and
//! the deadline, which each state sets for itself.

mod checkpoint;
mod head;
mod login;
mod peer;
pub(crate) mod receiving;
pub(crate) mod state;
mod stop;
mod unanswered;
mod upload;

use std::time::{Duration, Instant};

use super::receive_rate::ReceiveRate;
use super::transport::{READ_LEN, Received, Transport, WriteHint};
use super::write_buffer::WriteBuffer;
use crate::auth::connection_login::ConnectionLogin;
use crate::auth::logins::{Access, Logins};
use crate::body::{Body, Piece};
use crate::caches::narinfo_cache::StoreSession;
use crate::clock::Clock;
use crate::config::Limits;
use crate::context::Context;
use crate::deferred::DeferredRequest;
use crate::dispatch::{Dispatch, try_respond};
use crate::finish::access_log::LoggedRequest;
use crate::finish::{Finished, Finisher, Subject, Summary};
use crate::http::request::{Method, Parsed, Request, ResponseMode, may_be_complete};
use crate::http::response::{AfterResponse, Content, Response};
pub(crate) use peer::{Client, Peer};
use state::{Expiry, NextStep, ReadSide, Shortage, SocketEvent, State, Streaming};

/// A client's connection. `Debug` hides its input, which may have a password.
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    peer: Peer,
    /// The bytes that are received and not yet parsed.
    input: Vec<u8>,
    /// How many bytes of the input are known not to end a head.
    scanned: usize,
    pub(crate) output: WriteBuffer,
    pub(crate) state: State,
    login: ConnectionLogin,
    read_side: ReadSide,
    after_response: AfterResponse,
    /// Whether a request is read although the server stops: it may be on its way.
    reads_last_request: bool,
    /// How many requests were processed.
    requests: usize,
    /// Whether the event loop will resume the connection without an event.
    pub(crate) is_queued: bool,
    /// When the connection is closed unless something happens.
    pub(crate) deadline: Instant,
    receive_rate: ReceiveRate,
    /// How many bytes of bodies were received.
    body_received: u64,
    /// How many of the sent bytes have entered the metrics.
    counted_sent: u64,
}

/// The parts of a network thread that its connections use.
pub(crate) struct ThreadContext<'t> {
    pub(crate) context: &'t Context,
    pub(crate) limits: &'t Limits,
    pub(crate) logins: Option<&'t Logins>,
    pub(crate) session: &'t mut StoreSession,
    pub(crate) clock: &'t Clock,
    pub(crate) finisher: &'t mut Finisher,
    pub(crate) now: Instant,
    pub(crate) is_stopping: bool,
}

impl Connection {
    pub(crate) fn new(
        transport: Transport,
        peer: Peer,
        limits: &Limits,
        now: Instant,
    ) -> Connection {
        Connection {
            transport,
            peer,
            input: Vec::new(),
            scanned: 0,
            output: WriteBuffer::default(),
            state: State::Idle,
            login: ConnectionLogin::default(),
            read_side: ReadSide::Ready,
            after_response: AfterResponse::KeepAlive,
            reads_last_request: false,
            requests: 0,
            is_queued: false,
            deadline: now + limits.read_timeout,
            receive_rate: ReceiveRate::new(now),
            body_received: 0,
            counted_sent: 0,
        }
    }

    /// Does everything that is possible without waiting.
    pub(crate) fn advance(&mut self, thread: &mut ThreadContext<'_>) -> NextStep {
        let mut reads = 0;
        loop {
            match &self.state {
                State::Draining => return self.drain_input(),
                // The worker also sends the earlier responses in the write buffer.
                State::Deferred(_) => return NextStep::AwaitWorker,
                State::Verifying(_) => return NextStep::AwaitLogin,
                State::Receiving(_) => return self.await_body(thread),
                State::Sending(_) => {
                    if let Some(next) = self.send(thread) {
                        return next;
                    }
                    self.state = State::Idle;
                }
                State::Idle | State::ReadingHead => {
                    // A stopping server closes a connection that was lent at that moment here.
                    let is_over = thread.is_stopping && !self.reads_last_request;
                    if self.after_response != AfterResponse::KeepAlive || is_over {
                        return self.finish(thread.now);
                    }
                    if self.transport.has_proxied_client() {
                        return NextStep::Admit;
                    }
                    self.process_input(thread);
                    if !self.is_receiving() {
                        continue;
                    }
                    if self.read_side == ReadSide::Eof {
                        self.finish_failed_start(thread.finisher, thread.clock);
                        return NextStep::Close;
                    }
                    if self.transport.flush_handshake().is_err() {
                        return NextStep::Close;
                    }
                    // A client that always has another request ready must not keep the thread
                    // from its other connections.
                    reads += 1;
                    if reads > READS_PER_TURN_MAX {
                        return NextStep::Requeue;
                    }
                    if self.read_side == ReadSide::Drained {
                        self.wait_for_request(thread);
                        return NextStep::AwaitSocket;
                    }
                    self.receive();
                    // These bytes came after the database was asked for changes.
                    thread.session.begin_batch();
                }
            }
        }
    }

    /// Notes an event of the socket.
    pub(crate) fn note_event(&mut self, event: SocketEvent) {
        self.read_side = self.read_side.after_event(event);
    }

    /// Reads what an event has announced. The event loop does so for all events of a batch before
    /// it responds to any, so that one check of the database covers all of them.
    pub(crate) fn prefetch_input(&mut self, event: SocketEvent) {
        self.note_event(event);
        if self.is_receiving() && self.read_side != ReadSide::Eof {
            self.receive();
        }
    }

    /// Decides whether the connection has to be closed now.
    pub(crate) fn expiry(&mut self, now: Instant, limits: &Limits, shortage: Shortage) -> Expiry {
        let slow = match self.state {
            State::Sending(_) | State::Receiving(_) => self.observe_rate(now, limits),
            _ => {
                self.reset_rate(now);
                None
            }
        };
        // The deadline of an idle connection counts from its last response, or from its beginning.
        let allowed = match self.transport.sent {
            0 => limits.read_timeout,
            _ => limits.keep_alive_timeout,
        };
        let is_unused =
            matches!(self.state, State::Idle) && now + allowed >= self.deadline + IDLE_WHEN_FULL;
        if self.deadline <= now || slow.is_some_and(|slow| slow >= limits.write_timeout) {
            Expiry::Timeout
        } else if shortage.connections && (slow.is_some() || is_unused) {
            Expiry::ForRoom
        } else if shortage.log_decoders && slow.is_some() && self.has_log_decoder() {
            Expiry::ForLogDecoder
        } else {
            Expiry::None
        }
    }

    /// Puts the head of a response and a short body into the write buffer. Returns a longer body,
    /// which a worker has to send.
    pub(crate) fn queue_response(
        &mut self,
        response: Response,
        mode: ResponseMode,
        clock: &Clock,
    ) -> Option<Body> {
        // HTTP/1.0 has no chunks, so the end of the connection marks the end of the body.
        let ends_connection = mode.is_http10 && response.length.is_none();
        if ends_connection && self.after_response == AfterResponse::KeepAlive {
            self.after_response = AfterResponse::Close;
        }
        let out = &mut self.output.bytes;
        response.write_head(out, &clock.date_header, mode, self.after_response);
        if mode.head_only || response.status == 304 {
            return None;
        }
        match response.content {
            Content::Text(text) if text.as_str().len() <= INLINE_LEN_MAX => {
                self.output.extend(text.as_str().as_bytes());
                None
            }
            // The text is shared by all clients. A copy for each would take too much memory.
            Content::Text(text) => Some(Body::new([Piece::Text { text, sent: 0 }])),
            Content::Bytes(bytes) => {
                self.output.extend(&bytes);
                None
            }
            Content::Body(body) => Some(body),
        }
    }

    /// Returns how many bytes were sent since the last call.
    pub(crate) fn take_uncounted_sent(&mut self) -> u64 {
        let sent = self.transport.sent;
        sent - std::mem::replace(&mut self.counted_sent, sent)
    }

    /// Returns the address of the client, for the access log.
    pub(crate) fn peer_name(&self) -> &str {
        self.peer.name()
    }

    fn has_log_decoder(&self) -> bool {
        matches!(&self.state, State::Sending(Some(streaming)) if streaming.body.has_log_decoder())
    }

    fn is_receiving(&self) -> bool {
        matches!(self.state, State::Idle | State::ReadingHead)
    }

    /// Sends the write buffer. Returns `None` if there is no body and all is sent.
    fn send(&mut self, thread: &ThreadContext<'_>) -> Option<NextStep> {
        if !self.output.is_empty() {
            let before = self.transport.sent;
            let sent = self.output.send(&mut self.transport, WriteHint::Last);
            // The timeout begins anew with each byte that the client takes.
            if self.transport.sent > before {
                self.deadline = thread.now + thread.limits.write_timeout;
            }
            match sent {
                Ok(true) => {}
                Ok(false) => {
                    self.output.compact();
                    return Some(NextStep::AwaitSocket);
                }
                Err(_) => return Some(NextStep::Close),
            }
        }
        match &self.state {
            State::Sending(Some(_)) if self.transport.is_writable(Duration::ZERO) => {
                Some(NextStep::AwaitWorker)
            }
            State::Sending(Some(_)) => Some(NextStep::AwaitSocket),
            _ => None,
        }
    }

    /// Responds to the requests whose heads are complete, until one has to be deferred or has a
    /// body to be sent.
    fn process_input(&mut self, thread: &mut ThreadContext<'_>) {
        let mut input = std::mem::take(&mut self.input);
        let mut consumed = 0;
        while self.is_receiving() && self.after_response == AfterResponse::KeepAlive {
            let rest = input.get(consumed..).unwrap_or_default();
            // A client that sends requests but reads no responses has to wait.
            if rest.is_empty() || self.output.len() >= PIPELINED_LEN_MAX {
                break;
            }
            // The parser looks at the first bytes even if they are not a whole head. So a client
            // that uses TLS instead of HTTP gets an error at once.
            if self.scanned > 0 && !may_be_complete(rest, self.scanned, thread.limits.head_len_max)
            {
                self.scanned = rest.len();
                break;
            }
            self.scanned = 0;
            self.peer.begin_head();
            match Request::parse(rest, thread.limits.head_len_max) {
                Parsed::Incomplete => {
                    self.scanned = rest.len();
                    break;
                }
                Parsed::Rejected(refusal) => self.refuse(rest, refusal, thread),
                Parsed::Head(request, len) => {
                    self.state = State::Idle;
                    self.after_response = self.after(&request, thread);
                    self.process_request(&request, thread);
                    match self.state {
                        // The head is processed again with the result.
                        State::Verifying(_) => self.after_response = AfterResponse::KeepAlive,
                        _ => {
                            consumed += len;
                            self.requests += 1;
                        }
                    }
                }
            }
        }
        input.drain(..consumed);
        if !input.is_empty() || input.capacity() <= READ_LEN {
            self.input = input;
        }
        // Earlier responses do not wait for the result.
        let is_waiting = self.is_receiving() || matches!(self.state, State::Verifying(_));
        if is_waiting && !self.output.is_empty() {
            self.state = State::Sending(None);
        }
        if matches!(self.state, State::Sending(_)) {
            self.deadline = thread.now + thread.limits.write_timeout;
        }
    }

    fn process_request(&mut self, request: &Request<'_>, thread: &mut ThreadContext<'_>) {
        let began = thread.finisher.begin();
        let proxies = &thread.limits.trusted_proxies;
        let has_log = thread.finisher.keeps_requests();
        self.peer.begin_request(request, proxies, has_log);
        let route = self.peer.routes.find(request, &thread.context.prefix);
        let kind = route.kind();
        let dispatch = match self.check_login(request, &route, thread.logins) {
            Access::Granted if matches!(request.method, Method::Put | Method::Delete) => {
                match self.begin_upload(request, &route, thread) {
                    Err(refusal) => Dispatch::Respond(refusal),
                    Ok(receiving) => {
                        self.state = State::Receiving(receiving);
                        return;
                    }
                }
            }
            Access::Granted => try_respond(thread.context, request, route, thread.session),
            Access::Refused(refusal) => Dispatch::Respond(Response::refused(refusal)),
            Access::Verify(check) => {
                self.state = State::Verifying(check);
                return;
            }
        };
        match dispatch {
            Dispatch::Respond(response) => {
                thread.finisher.finish_response(&Finished {
                    peer: self.peer.name(),
                    user: self.login.user(),
                    route: kind,
                    request: Subject::Parsed(request),
                    summary: Summary::new(&response, request.mode(), began),
                    clock: thread.clock,
                });
                let mode = thread.mode(request);
                if let Some(body) = self.queue_response(response, mode, thread.clock) {
                    let request = None;
                    self.state = State::Sending(Some(Box::new(Streaming { body, request })));
                }
            }
            Dispatch::Defer(route, nar) => {
                let arrival = (thread.mode(request), thread.now);
                let logged = has_log.then(|| LoggedRequest::new(request).into_owned());
                let deferred = DeferredRequest::new(request, (route, nar), arrival, logged);
                self.state = State::Deferred(Box::new(deferred));
            }
        }
    }

    fn receive(&mut self) {
        let received = self.transport.read(&mut self.input);
        self.read_side = self.read_side.after_read(received);
    }

    fn wait_for_request(&mut self, thread: &ThreadContext<'_>) {
        self.output.shrink();
        match (&self.state, self.input.is_empty()) {
            // The first request has the time of a head, from the beginning of the connection.
            (State::Idle, true) if self.transport.sent == 0 => {}
            (State::Idle, true) => self.deadline = thread.now + thread.limits.keep_alive_timeout,
            (State::Idle, false) => {
                self.state = State::ReadingHead;
                self.deadline = thread.now + thread.limits.read_timeout;
            }
            // The deadline counts from the first byte of the head, however slowly the rest comes.
            _ => {}
        }
    }

    fn finish(&mut self, now: Instant) -> NextStep {
        self.transport.close_tls();
        let is_unread = self.after_response == AfterResponse::CloseUnread;
        if !is_unread && self.input.is_empty() && !self.transport.has_input() {
            return NextStep::Close;
        }
        if self.transport.shutdown_write().is_err() {
            return NextStep::Close;
        }
        self.state = State::Draining;
        self.deadline = now + DRAIN_MAX;
        self.drain_input()
    }

    fn drain_input(&mut self) -> NextStep {
        self.input.clear();
        for _ in 0..READS_PER_TURN_MAX {
            match self.transport.read(&mut self.input) {
                Received::Closed => return NextStep::Close,
                Received::Bytes { .. } => self.input.clear(),
                Received::Blocked => return NextStep::AwaitSocket,
            }
        }
        NextStep::Requeue
    }
}

/// How often a connection reads before other connections of its thread have their turn.
const READS_PER_TURN_MAX: u32 = 16;

/// Longer texts are not copied into the write buffer. All NARs that are kept in memory are shorter.
const INLINE_LEN_MAX: usize = 64 * 1024;

/// With this much to send, no further pipelined request is processed.
const PIPELINED_LEN_MAX: usize = 64 * 1024;

/// How long a connection may be idle while all connections of the server are in use. A client that
/// sends one request after the other is faster.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(5);

/// How long the input of a finished connection is discarded: some round trips.
const DRAIN_MAX: Duration = Duration::from_secs(2);
