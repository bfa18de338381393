//! The threads that read files, so that network threads never wait for a disk.
//!
//! A network thread lends a connection to a worker if its response needs files. The worker
//! computes the response, sends as much as the socket takes, and returns the connection. So a
//! slow disk delays one worker, and a slow client delays no thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use floe_store::{LiveStore, StoreError};

use crate::caches::narinfo_cache::StoreSession;
use crate::clock::Clock;
use crate::deferred::DeferredRequest;
use crate::dispatch::respond_blocking;
use crate::finish::access_log::LoggedRequest;
use crate::finish::{Finished, Finisher, Subject, Summary};
use crate::handlers;
use crate::http::request::ResponseMode;
use crate::http::response::Response;
use crate::http::route::Route;
use crate::http::route_kind::RouteKind;
use crate::metrics::counters::UploadResult;
use crate::net::connection::Connection;
use crate::net::connection::receiving::{BodyProgress, Receiving};
use crate::net::connection::state::{State, Streaming};

use crate::net::job_queue::JobQueue;
use crate::net::send::{Progress, SendError, send_body};
use crate::net::shared::{Phase, ServerShared};
use crate::readiness;
use crate::receive::{ReceiveError, ReceiveErrorKind, Upload};

/// Works on the connections of a queue until the server stops.
pub(crate) fn work(shared: &ServerShared, queue: &JobQueue) {
    let mut worker = Worker {
        shared,
        queue,
        clock: Clock::new(),
        finisher: Finisher::new(shared.context.metrics.register(), shared.log.clone()),
        session: None,
    };
    while let Some(mut job) = queue.pop() {
        worker.finisher.counters.count_begun_job();
        worker.clock.tick(Instant::now());
        let handled = shared
            .context
            .catch_panic(|| worker.handle(&mut job.connection));
        let outcome = handled.unwrap_or(Outcome::Broken);
        worker.count(&mut job.connection);
        shared.return_connection(job, !matches!(outcome, Outcome::Broken));
        if let Outcome::Sent(Some(request)) = outcome
            && let Some(nar) = &request.nar
        {
            let after_send = AssertUnwindSafe(|| handlers::nar::after_send(&shared.context, nar));
            let _: std::thread::Result<()> = catch_unwind(after_send);
        }
        worker.finisher.counters.count_ended_job();
    }
}

struct Worker<'s> {
    shared: &'s ServerShared,
    queue: &'s JobQueue,
    clock: Clock,
    finisher: Finisher,
    /// Opened for the first request, so that idle workers hold no connection to the database.
    session: Option<StoreSession>,
}

/// The result of working on a connection.
enum Outcome {
    /// A response was sent to its end. The request is that of a response with a body.
    Sent(Option<Box<DeferredRequest>>),
    /// A part of the response is still to be sent.
    Partial,
    /// The connection has to be closed.
    Broken,
}

impl Worker<'_> {
    fn handle(&mut self, connection: &mut Connection) -> Outcome {
        match std::mem::replace(&mut connection.state, State::Sending(None)) {
            State::Deferred(request) => self.respond(connection, request),
            State::Receiving(receiving) => self.receive(connection, receiving),
            State::Sending(Some(streaming)) => {
                let sent = self.send(connection, streaming);
                sent.unwrap_or_else(|error| self.abort(&error))
            }
            // The network threads lend no connection in any other state.
            _ => Outcome::Broken,
        }
    }

    fn respond(
        &mut self,
        connection: &mut Connection,
        mut request: Box<DeferredRequest>,
    ) -> Outcome {
        let (began, route) = (Some(request.received), request.route.kind());
        let response = self.compute(&mut request);
        let (mode, logged) = (request.mode, request.logged.take());
        let finished = |response: &Response| (route, Summary::new(response, mode, began));
        let summary = finished(&response);
        let start = connection.checkpoint();
        let error = match self.send_response(connection, response, mode, Some(request)) {
            // Nothing of the response was sent, so the client gets another one.
            Err(SendError::Store(error)) if connection.roll_back(&start) => error,
            sent => {
                self.finish(connection, logged.as_ref(), summary);
                return sent.unwrap_or_else(|error| self.abort(&error));
            }
        };
        let response = self.shared.context.error_response(&error);
        let summary = finished(&response);
        self.finish(connection, logged.as_ref(), summary);
        let sent = self.send_response(connection, response, mode, None);
        sent.unwrap_or(Outcome::Broken)
    }

    /// Receives what has come of the body of a request, and responds after its last byte.
    fn receive(&mut self, connection: &mut Connection, mut receiving: Box<Receiving>) -> Outcome {
        let before = connection.body_received();
        let progress = self.receive_body(connection, &mut receiving);
        let came = connection.body_received() - before;
        self.finisher.counters.count_upload_bytes(came);
        let (response, result) = match progress {
            Ok(BodyProgress::Incomplete) => {
                // The deadline begins anew with each byte.
                if came > 0 {
                    connection.deadline = Instant::now() + self.shared.limits().read_timeout;
                }
                connection.state = State::Receiving(receiving);
                return Outcome::Partial;
            }
            Ok(BodyProgress::Closed) => {
                self.finisher.counters.count_upload(UploadResult::Broken);
                return Outcome::Broken;
            }
            Ok(BodyProgress::Complete) => {
                connection.finish_body(&receiving, self.shared.phase() != Phase::Running);
                match receiving.upload.take().map_or(Ok(()), Upload::finish) {
                    Ok(()) if receiving.request.is_deletion => {
                        (Response::deleted(), UploadResult::Received)
                    }
                    Ok(()) => (Response::created(), UploadResult::Received),
                    Err(error) => (self.not_received(&error), UploadResult::Refused),
                }
            }
            Err(error) => (self.not_received(&error), UploadResult::Refused),
        };
        // The upload frees its disk space before the client gets the response.
        drop(receiving.upload.take());
        self.finisher.counters.count_upload(result);
        let summary = Summary::new(&response, receiving.mode, Some(receiving.received));
        self.finish(
            connection,
            receiving.logged.as_ref(),
            (receiving.route, summary),
        );
        let sent = self.send_response(connection, response, receiving.mode, None);
        sent.unwrap_or_else(|error| self.abort(&error))
    }

    /// Reads a body for as long as it comes and no other connection waits for a worker.
    fn receive_body(
        &self,
        connection: &mut Connection,
        receiving: &mut Receiving,
    ) -> Result<BodyProgress, ReceiveError> {
        if receiving.upload.is_none()
            && let Some(receiver) = &self.shared.context.receiver
        {
            receiving.upload = Some(receiver.begin(&receiving.request)?);
            connection.continue_upload(receiving);
        }
        loop {
            let progress = connection.receive_body(receiving)?;
            let is_last = progress != BodyProgress::Incomplete
                || !self.queue.is_empty()
                || self.shared.phase() == Phase::Stopped;
            if is_last || !connection.has_more_body(SOCKET_WAIT) {
                return Ok(progress);
            }
        }
    }

    /// Returns the response to an upload that is not received. The operator learns what the client
    /// must not.
    fn not_received(&self, error: &ReceiveError) -> Response {
        if error.kind == ReceiveErrorKind::System {
            (self.shared.context.warn)(&format!("cannot receive an upload: {error}"));
        }
        Response::not_received(error)
    }

    fn abort(&self, error: &SendError) -> Outcome {
        if !matches!(error, SendError::Socket(_)) {
            (self.shared.context.warn)(&format!("aborting a response: {error}"));
        }
        Outcome::Broken
    }

    fn finish(
        &mut self,
        connection: &Connection,
        logged: Option<&LoggedRequest<'static>>,
        (route, summary): (RouteKind, Summary),
    ) {
        self.finisher.finish_response(&Finished {
            peer: connection.peer_name(),
            route,
            request: Subject::Deferred(logged),
            user: connection.user(),
            summary,
            clock: &self.clock,
        });
        self.finisher.flush();
    }

    fn send_response(
        &self,
        connection: &mut Connection,
        response: Response,
        mode: ResponseMode,
        request: Option<Box<DeferredRequest>>,
    ) -> Result<Outcome, SendError> {
        let body = connection.queue_response(response, mode, &self.clock);
        let body = body.unwrap_or_default();
        self.send(connection, Box::new(Streaming { body, request }))
    }

    fn compute(&mut self, request: &mut DeferredRequest) -> Response {
        let shared = self.shared;
        let context = &shared.context;
        if request.route == Route::Ready {
            return self.check_readiness();
        }
        match self.session(DATABASE_WAIT) {
            Ok(session) => {
                session.begin_batch();
                respond_blocking(context, request, session)
            }
            Err(error) => context.error_response(&error),
        }
    }

    /// Sends the write buffer and the body, for as long as no other connection waits for a worker.
    fn send(
        &self,
        connection: &mut Connection,
        mut streaming: Box<Streaming>,
    ) -> Result<Outcome, SendError> {
        loop {
            let Connection {
                output, transport, ..
            } = connection;
            match send_body(&mut streaming.body, output, transport, MAX_BYTES_PER_TURN)? {
                Progress::Complete => return Ok(Outcome::Sent(streaming.request)),
                _ if !self.queue.is_empty() || self.shared.phase() == Phase::Stopped => {
                    break;
                }
                // A client on the same machine or network has room again within this time.
                Progress::Blocked if !connection.transport.is_writable(SOCKET_WAIT) => break,
                Progress::Blocked | Progress::Partial => {}
            }
        }
        connection.output.compact();
        connection.deadline = Instant::now() + self.shared.limits().write_timeout;
        connection.state = State::Sending(Some(streaming));
        Ok(Outcome::Partial)
    }

    /// Responds to a request for `/ready`.
    fn check_readiness(&mut self) -> Response {
        let context = &self.shared.context;
        let report = context.readiness.check(&context.layout, || {
            let store = &mut self.session(readiness::DATABASE_WAIT)?.store;
            store.set_busy_timeout(readiness::DATABASE_WAIT)?;
            let result = readiness::query(store);
            store.set_busy_timeout(DATABASE_WAIT)?;
            result
        });
        handlers::monitoring::ready(&report)
    }

    /// Counts what the worker has done for a connection besides the response.
    fn count(&mut self, connection: &mut Connection) {
        let counters = &mut self.finisher.counters;
        counters.count_sent(connection.take_uncounted_sent());
        if let Some(session) = &self.session {
            counters.note_database_reopenings(session.store.reopenings());
        }
    }

    /// Returns the session. If there is none yet, waits for the database to be unlocked.
    fn session(&mut self, wait: Duration) -> Result<&mut StoreSession, StoreError> {
        match self.session {
            Some(ref mut session) => Ok(session),
            ref mut session @ None => {
                let layout = self.shared.context.layout.clone();
                let store = LiveStore::open(layout, wait)?;
                Ok(session.insert(StoreSession::new(store)))
            }
        }
    }
}

/// After this many bytes a worker looks whether another connection waits for a worker.
const MAX_BYTES_PER_TURN: u64 = 8 * 1024 * 1024;

/// How long a worker with nothing else to do waits for a socket. To return the connection and to
/// get it again costs more.
const SOCKET_WAIT: Duration = Duration::from_millis(10);

/// How long a query waits for Nix to unlock the database. Clients wait longer than that.
const DATABASE_WAIT: Duration = Duration::from_secs(20);
