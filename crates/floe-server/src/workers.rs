//! The threads that touch files, so that the network's threads never wait for a disk.
//!
//! A connection whose request needs files is lent to a worker, which answers it, sends as much as
//! the socket takes, and gives it back. So a slow disk holds up a worker and a slow client
//! nobody.

use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use floe_store::LiveStore;

use crate::body::{SendError, SendProgress};
use crate::caches::narinfo_cache::StoreSession;
use crate::clock::Clock;
use crate::context::DeferredRequest;
use crate::http::route::Route;
use crate::net::connection::{Connection, ResponseRecord};
use crate::net::shared::{Phase, ServerShared};

/// Works until the server stops.
pub(crate) fn work(shared: &ServerShared) {
    let mut clock = Clock::new();
    let mut session = None;
    while let Some(mut job) = shared.queue.pop() {
        clock.tick(Instant::now());
        // Whatever goes wrong with a request, the next one is answered.
        let handled = catch_unwind(AssertUnwindSafe(|| {
            handle(shared, &mut job.connection, &mut session, &clock)
        }));
        let (is_alive, sent) = handled.unwrap_or_else(|_| {
            (shared.context.warn)("a request has caused a panic; please report it");
            (false, None)
        });
        shared.return_connection(job, is_alive);
        if let Some(request) = sent {
            let after = AssertUnwindSafe(|| after(shared, &request, &mut session));
            let _: std::thread::Result<()> = catch_unwind(after);
        }
    }
}

/// Answers and sends. Whether the connection is still good, and the request if its answer has
/// been sent to the end.
fn handle(
    shared: &ServerShared,
    connection: &mut Connection,
    session: &mut Option<StoreSession>,
    clock: &Clock,
) -> (bool, Option<DeferredRequest>) {
    let unanswered = connection
        .deferred
        .clone()
        .filter(|_| !connection.is_answered);
    let before = (connection.output.len(), connection.output.sent_ever());
    let kept_alive = connection.keep_alive;
    if let Some(request) = &unanswered {
        answer(shared, connection, request, session, clock);
        connection.is_answered = true;
    }
    let error = match send(shared, connection) {
        Ok(SendProgress::Complete) => return (true, connection.deferred.take()),
        Ok(SendProgress::Blocked | SendProgress::Yielded) => return (true, None),
        Err(SendError::Socket(_)) => return (false, None),
        Err(error) => error,
    };
    match (unanswered, &error) {
        // As long as nothing has gone out, the client can still be told.
        (Some(request), SendError::Store(error)) if connection.output.sent_ever() == before.1 => {
            connection.output.truncate(before.0);
            connection.body = None;
            connection.keep_alive = kept_alive;
            let answer = shared.context.error_response(error);
            connection.put(answer, request.head_only, request.is_http10, clock);
            (send(shared, connection).is_ok(), None)
        }
        _ => {
            (shared.context.warn)(&format!("an answer was broken off: {error}"));
            (false, None)
        }
    }
}

fn answer(
    shared: &ServerShared,
    connection: &mut Connection,
    request: &DeferredRequest,
    session: &mut Option<StoreSession>,
    clock: &Clock,
) {
    let began = Instant::now();
    let answer = match open(shared, session) {
        Ok(session) => {
            session.begin_batch();
            shared.context.respond_blocking(request, session)
        }
        Err(error) => shared.context.error_response(&error),
    };
    if let (Some((format, log)), Some(head)) = (&shared.log, &request.head) {
        let logged = ResponseRecord {
            time: &clock.log_time,
            status: answer.status,
            length: answer.length,
            took: began.elapsed(),
        };
        let line = connection.log_line(head, *format, &logged);
        log.write(&line);
    }
    connection.put(answer, request.head_only, request.is_http10, clock);
}

/// Sends the output and the body, for as long as nobody else waits for a worker.
fn send(shared: &ServerShared, connection: &mut Connection) -> Result<SendProgress, SendError> {
    let mut body = connection.body.take().unwrap_or_default();
    let sent = loop {
        let socket = connection.socket.as_fd();
        match body.send(&mut connection.output, socket, MAX_BYTES_PER_TURN)? {
            SendProgress::Complete => return Ok(SendProgress::Complete),
            sent if !shared.queue.is_empty() || shared.phase() == Phase::Stopped => break sent,
            // A client on the same machine or network has room again in no time.
            SendProgress::Blocked if !connection.is_writable(SOCKET_WAIT) => {
                break SendProgress::Blocked;
            }
            SendProgress::Blocked | SendProgress::Yielded => {}
        }
    };
    connection.body = Some(body);
    connection.output.compact();
    connection.deadline = Instant::now() + shared.limits.write_timeout;
    Ok(sent)
}

/// What is worth doing once the client has its answer.
fn after(shared: &ServerShared, request: &DeferredRequest, session: &mut Option<StoreSession>) {
    let Route::Nar { hash, .. } = request.route else {
        return;
    };
    let Ok(session) = open(shared, session) else {
        return;
    };
    if let Ok(Some(entry)) = shared.context.find(session, hash) {
        crate::handlers::nar::after(&shared.context, &entry);
    }
}

/// The worker's own view of the store, opened when it is first needed.
fn open<'r>(
    shared: &ServerShared,
    session: &'r mut Option<StoreSession>,
) -> Result<&'r mut StoreSession, floe_store::StoreError> {
    match session {
        Some(session) => Ok(session),
        None => {
            let store = LiveStore::open(shared.context.layout.clone(), DATABASE_WAIT)?;
            Ok(session.insert(StoreSession::new(store)))
        }
    }
}

/// After so many bytes a worker looks whether somebody else waits.
const MAX_BYTES_PER_TURN: u64 = 8 * 1024 * 1024;

/// How long a worker that has nothing else to do waits for a socket, which saves handing the
/// connection back and forth.
const SOCKET_WAIT: Duration = Duration::from_millis(10);

/// How long a request waits for Nix to release the database. Clients wait longer than that.
const DATABASE_WAIT: Duration = Duration::from_secs(20);
