//! One client: bytes in, answers out.
//!
//! 1. send what waits;
//! 2. answer what was asked for whole;
//! 3. read more;
//!
//! and so on, until the socket blocks or a worker is needed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, shutdown};

use crate::access_log::{self, RequestOutcome};
use crate::body::{Body, Piece};
use crate::caches::narinfo_cache::StoreSession;
use crate::clock::Clock;
use crate::config::LogFormat;
use crate::context::{Context, DeferredRequest};
use crate::dispatch::Dispatch;
use crate::http::request::{HEAD_LEN_MAX, Method, Parsed, Request, may_be_complete};
use crate::http::response::{Content, Framing, Response};
use crate::net::limits::Limits;
use crate::net::write_buffer::WriteBuffer;

/// A client's connection and all that is known of it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    /// Its address, for the log.
    peer: String,
    input: Vec<u8>,
    /// How much of the input has been looked at in vain.
    scanned: usize,
    pub(crate) output: WriteBuffer,
    pub(crate) body: Option<Box<Body>>,
    /// What a worker has to answer, or has answered with the body that is being sent.
    pub(crate) deferred: Option<DeferredRequest>,
    /// Whether the request is answered.
    pub(crate) is_answered: bool,
    /// Whether another request may follow.
    pub(crate) keep_alive: bool,
    /// Whether a head has begun to come in.
    is_reading: bool,
    /// Whether the socket has nothing more to read, until an event tells otherwise.
    pub(crate) is_drained: bool,
    /// Whether nothing more will come.
    eof: bool,
    /// Whether the socket has left a part of the output behind.
    is_sending: bool,
    /// Whether the client's end is known to be closed: what is read goes on to that end.
    pub(crate) hung_up: bool,
    /// Whether the client may still be sending what nobody reads.
    has_unread: bool,
    /// Whether it stands in the list of those that go on without an event.
    pub(crate) queued: bool,
    /// Nothing more is sent; what comes is thrown away, so that the last answer is not.
    lingers: bool,
    /// When it is given up.
    pub(crate) deadline: Instant,
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// For its socket.
    AwaitSocket,
    /// For a worker.
    AwaitWorker,
    /// For its next turn.
    Requeue,
    /// For nothing.
    Close,
}

/// What the log tells of an answer.
pub(crate) struct ResponseRecord<'t> {
    pub(crate) time: &'t str,
    pub(crate) status: u16,
    pub(crate) length: Option<u64>,
    pub(crate) took: Duration,
}

/// What one of the network's threads brings along.
pub(crate) struct ThreadContext<'t> {
    pub(crate) context: &'t Context,
    pub(crate) limits: &'t Limits,
    pub(crate) session: &'t mut StoreSession,
    pub(crate) clock: &'t Clock,
    /// Lines for the access log.
    pub(crate) log: &'t mut String,
    pub(crate) now: Instant,
    /// Whether the server is about to end.
    pub(crate) is_stopping: bool,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, peer: String, limits: &Limits, now: Instant) -> Connection {
        Connection {
            socket,
            peer,
            input: Vec::new(),
            scanned: 0,
            output: WriteBuffer::default(),
            body: None,
            deferred: None,
            is_answered: false,
            keep_alive: true,
            is_reading: false,
            is_drained: false,
            eof: false,
            is_sending: false,
            hung_up: false,
            has_unread: false,
            queued: false,
            lingers: false,
            deadline: now + limits.read_timeout,
        }
    }

    /// Goes on as far as it can without waiting.
    pub(crate) fn advance(&mut self, thread: &mut ThreadContext<'_>) -> NextStep {
        if self.lingers {
            return self.discard();
        }
        let mut rounds = 0;
        loop {
            // A worker sends what is in the output together with its own.
            if self.deferred.is_some() && !self.is_answered {
                return NextStep::AwaitWorker;
            }
            if !self.output.is_empty() {
                let before = self.output.len();
                let sent = self.output.send(self.socket.as_fd(), SendFlags::empty());
                // The answer has a time of its own, which begins anew with each byte taken.
                if !self.is_sending || self.output.len() < before {
                    self.deadline = thread.now + thread.limits.write_timeout;
                }
                self.is_sending = !self.output.is_empty();
                match sent {
                    Ok(true) => {}
                    Ok(false) => {
                        self.output.compact();
                        return NextStep::AwaitSocket;
                    }
                    Err(_) => return NextStep::Close,
                }
            }
            if self.body.is_some() {
                return match self.is_writable(Duration::ZERO) {
                    true => NextStep::AwaitWorker,
                    false => NextStep::AwaitSocket,
                };
            }
            self.deferred = None;
            self.is_answered = false;
            // One that was away when the server was told to end learns of it here.
            if !self.keep_alive || thread.is_stopping {
                return self.end(thread.now);
            }
            if self.answer(thread) {
                continue;
            }
            if self.eof {
                return NextStep::Close;
            }
            // One that always has another request ready lets the others have their turn.
            rounds += 1;
            if rounds > READS_PER_TURN_MAX {
                return NextStep::Requeue;
            }
            // Events tell of changes only: the socket is read until it has nothing left.
            if self.is_drained {
                self.wait_for_request(thread);
                return NextStep::AwaitSocket;
            }
            self.receive();
            // What has come since the database was looked at wants another look.
            thread.session.begin_batch();
        }
    }

    /// Reads what an event has told of, before any request of its batch is answered: so that one
    /// look at the database comes later than all of them.
    pub(crate) fn fill(&mut self) {
        self.is_drained = false;
        let is_busy = !self.output.is_empty() || self.body.is_some() || self.deferred.is_some();
        if !self.lingers && !is_busy {
            self.receive();
        }
    }

    fn receive(&mut self) {
        match self.read() {
            Ok(0) => self.eof = true,
            // An end that came with these bytes is not told of again.
            Ok(read) => self.is_drained = read < READ_LEN && !self.hung_up,
            Err(Errno::AGAIN) => self.is_drained = true,
            Err(_) => self.eof = true,
        }
    }

    /// Gives an idle connection up; one that has a request under way is ended after it.
    pub(crate) fn stop(&mut self) -> NextStep {
        let is_idle = self.output.is_empty() && self.body.is_none() && self.deferred.is_none();
        self.keep_alive = false;
        match is_idle {
            true => NextStep::Close,
            false => NextStep::AwaitSocket,
        }
    }

    /// Whether the socket takes bytes, within some time.
    pub(crate) fn is_writable(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        let patience = Timespec::try_from(patience).unwrap_or_default();
        matches!(poll(&mut fds, Some(&patience)), Ok(ready) if ready > 0)
    }

    /// Puts an answer into the output: its head and, if it is short, its body.
    pub(crate) fn put(
        &mut self,
        answer: Response,
        head_only: bool,
        is_http10: bool,
        clock: &Clock,
    ) {
        let keep_alive = self.keep_alive && !(is_http10 && answer.length.is_none());
        self.keep_alive = keep_alive;
        let framing = match head_only {
            true => Framing::None,
            false => Framing::Chunked,
        };
        answer.write_head(
            &mut self.output.bytes,
            &clock.date_header,
            keep_alive,
            is_http10,
            framing,
        );
        if head_only || answer.status == 304 {
            return;
        }
        match answer.content {
            Content::Text(text) if text.as_str().len() <= INLINE_LEN_MAX => {
                self.output.extend(text.as_str().as_bytes());
            }
            // A client that does not read would otherwise hold a copy of its own.
            Content::Text(text) => self.body = Some(Box::new(Body::of([Piece::text(text)]))),
            Content::Bytes(bytes) => self.output.extend(&bytes),
            Content::Body(body) => self.body = Some(body),
        }
    }

    /// The line for the access log of a request that a worker has answered.
    pub(crate) fn log_line(
        &self,
        head: &[u8],
        format: LogFormat,
        answered: &ResponseRecord<'_>,
    ) -> String {
        let mut line = String::new();
        if let Parsed::Head(request, _) = Request::parse(head) {
            access_log::line(&mut line, format, &request, &self.answered(answered));
        }
        line
    }

    /// Answers the requests that are there whole. True if there is something to send or to do.
    fn answer(&mut self, thread: &mut ThreadContext<'_>) -> bool {
        let mut input = std::mem::take(&mut self.input);
        let mut consumed = 0;
        while self.keep_alive && self.body.is_none() && self.deferred.is_none() {
            let rest = input.get(consumed..).unwrap_or_default();
            let is_crowded = self.output.len() >= PIPELINED_LEN_MAX;
            // The first bytes are parsed in any case: what is no request, as from a client that
            // speaks TLS, is told so at once.
            let is_worth = self.scanned == 0 || may_be_complete(rest, self.scanned);
            if rest.is_empty() || is_crowded || !is_worth {
                self.scanned = rest.len();
                break;
            }
            self.scanned = 0;
            match Request::parse(rest) {
                Parsed::Incomplete => {
                    self.scanned = rest.len();
                    break;
                }
                Parsed::Rejected(status) => {
                    self.keep_alive = false;
                    self.has_unread = true;
                    self.put(Response::client_error(status), false, false, thread.clock);
                }
                Parsed::Head(request, len) => {
                    consumed += len;
                    self.is_reading = false;
                    self.has_unread = request.has_body;
                    let is_last = thread.is_stopping || !thread.limits.keep_alive;
                    self.keep_alive = request.keep_alive && !is_last;
                    self.answer_one(&request, rest.get(..len).unwrap_or_default(), thread);
                }
            }
        }
        input.drain(..consumed);
        if !input.is_empty() || input.capacity() <= READ_LEN {
            self.input = input;
        }
        !self.output.is_empty() || self.body.is_some() || self.deferred.is_some()
    }

    fn answer_one(&mut self, request: &Request<'_>, head: &[u8], thread: &mut ThreadContext<'_>) {
        let began = thread.limits.log.is_some().then(Instant::now);
        match thread.context.try_respond(request, thread.session) {
            Dispatch::Respond(answer) => {
                if let (Some(format), Some(began)) = (thread.limits.log, began) {
                    let logged = ResponseRecord {
                        time: &thread.clock.log_time,
                        status: answer.status,
                        length: answer.length,
                        took: began.elapsed(),
                    };
                    access_log::line(thread.log, format, request, &self.answered(&logged));
                }
                let head_only = request.method == Method::Head;
                self.put(answer, head_only, request.is_http10, thread.clock);
            }
            Dispatch::Defer(mut request) => {
                request.head = began.map(|_| head.into());
                self.deferred = Some(request);
            }
        }
    }

    fn answered<'a>(&'a self, logged: &ResponseRecord<'a>) -> RequestOutcome<'a> {
        RequestOutcome {
            peer: &self.peer,
            time: logged.time,
            status: logged.status,
            length: logged.length,
            took: Some(logged.took),
        }
    }

    fn read(&mut self) -> Result<usize, Errno> {
        let before = self.input.len();
        self.input.resize(before + READ_LEN, 0);
        let result = loop {
            let free = self.input.get_mut(before..).unwrap_or_default();
            match recv(&self.socket, free, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                result => break result.map(|(read, _)| read),
            }
        };
        self.input.truncate(before + result.unwrap_or(0));
        result
    }

    fn wait_for_request(&mut self, thread: &ThreadContext<'_>) {
        self.output.relax();
        if self.input.is_empty() {
            // Who has asked for nothing yet has the time of a head from its first moment on.
            if self.output.sent_ever() > 0 {
                self.deadline = thread.now + thread.limits.keep_alive_timeout;
            }
        } else if !self.is_reading {
            // From the first byte on, however many follow one by one.
            self.is_reading = true;
            self.deadline = thread.now + thread.limits.read_timeout;
        }
    }

    /// Closes at once, unless the client is still sending: closing would then throw away the
    /// answer that it has not read yet.
    fn end(&mut self, now: Instant) -> NextStep {
        let is_quiet = || matches!(self.peek(), Err(Errno::AGAIN));
        if !self.has_unread && self.input.is_empty() && is_quiet() {
            return NextStep::Close;
        }
        if shutdown(&self.socket, Shutdown::Write).is_err() {
            return NextStep::Close;
        }
        self.lingers = true;
        self.deadline = now + LINGER_MAX;
        self.discard()
    }

    fn discard(&mut self) -> NextStep {
        self.input.clear();
        for _ in 0..READS_PER_TURN_MAX {
            match self.read() {
                Ok(0) => return NextStep::Close,
                Ok(_) => self.input.clear(),
                Err(Errno::AGAIN) => return NextStep::AwaitSocket,
                Err(_) => return NextStep::Close,
            }
        }
        // It sends faster than this thread should spend its time on.
        NextStep::Requeue
    }

    /// Whether there is anything to read, without reading it.
    fn peek(&self) -> Result<usize, Errno> {
        let mut byte = [0; 1];
        recv(&self.socket, &mut byte, RecvFlags::PEEK).map(|(read, _)| read)
    }
}

/// How often a connection reads in one turn.
const READS_PER_TURN_MAX: u32 = 16;

/// How much is read at once. Heads have a few hundred bytes.
const READ_LEN: usize = 4 * 1024;

/// A longer text is sent from where it is. As long as the NARs that are kept whole.
const INLINE_LEN_MAX: usize = 64 * 1024;

/// With this much to send, a client that asks for more without reading has to wait.
const PIPELINED_LEN_MAX: usize = 64 * 1024;

/// How long what a client sends in vain is thrown away. A second or two of round trips.
const LINGER_MAX: Duration = Duration::from_secs(2);

const _: () = assert!(READ_LEN < HEAD_LEN_MAX);
