//! The threads that touch files, so that the network's threads never wait for a disk.
//!
//! A connection whose request needs files is lent to a worker, which answers it, sends as much as
//! the socket takes, and gives it back. So a slow disk holds up a worker and a slow client
//! nobody.

use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use floe_store::LiveStore;

use crate::body::{Broken, Sent};
use crate::clock::Clock;
use crate::connection::{Connection, Logged};
use crate::context::Question;
use crate::lookup::Reader;
use crate::route::Route;
use crate::shared::{Phase, Shared};

/// Works until the server stops.
pub(crate) fn work(shared: &Shared) {
    let mut clock = Clock::new();
    let mut reader = None;
    while let Some(mut job) = shared.queue.pop() {
        clock.tick(Instant::now());
        // Whatever goes wrong with a request, the next one is answered.
        let handled = catch_unwind(AssertUnwindSafe(|| {
            handle(shared, &mut job.connection, &mut reader, &clock)
        }));
        let (is_alive, sent) = handled.unwrap_or_else(|_| {
            (shared.context.warn)("a request has caused a panic; please report it");
            (false, None)
        });
        shared.give_back(job, is_alive);
        if let Some(question) = sent {
            let after = AssertUnwindSafe(|| after(shared, &question, &mut reader));
            let _: std::thread::Result<()> = catch_unwind(after);
        }
    }
}

/// Answers and sends. Whether the connection is still good, and the question if its answer has
/// been sent to the end.
fn handle(
    shared: &Shared,
    connection: &mut Connection,
    reader: &mut Option<Reader>,
    clock: &Clock,
) -> (bool, Option<Question>) {
    let unanswered = connection
        .question
        .clone()
        .filter(|_| !connection.is_answered);
    let before = (connection.output.len(), connection.output.sent_ever());
    let kept_alive = connection.keep_alive;
    if let Some(question) = &unanswered {
        answer(shared, connection, question, reader, clock);
        connection.is_answered = true;
    }
    let error = match send(shared, connection) {
        Ok(Sent::All) => return (true, connection.question.take()),
        Ok(Sent::Blocked | Sent::Yielded) => return (true, None),
        Err(Broken::Socket(_)) => return (false, None),
        Err(error) => error,
    };
    match (unanswered, &error) {
        // As long as nothing has gone out, the client can still be told.
        (Some(question), Broken::Store(error)) if connection.output.sent_ever() == before.1 => {
            connection.output.truncate(before.0);
            connection.body = None;
            connection.keep_alive = kept_alive;
            let answer = shared.context.failed(error);
            connection.put(answer, question.head_only, question.is_old, clock);
            (send(shared, connection).is_ok(), None)
        }
        _ => {
            (shared.context.warn)(&format!("an answer was broken off: {error}"));
            (false, None)
        }
    }
}

fn answer(
    shared: &Shared,
    connection: &mut Connection,
    question: &Question,
    reader: &mut Option<Reader>,
    clock: &Clock,
) {
    let began = Instant::now();
    let answer = match open(shared, reader) {
        Ok(reader) => {
            reader.begin_batch();
            shared.context.slow(question, reader)
        }
        Err(error) => shared.context.failed(&error),
    };
    if let (Some((format, log)), Some(head)) = (&shared.log, &question.head) {
        let logged = Logged {
            time: &clock.logged,
            status: answer.status,
            length: answer.length,
            took: began.elapsed(),
        };
        let line = connection.log_line(head, *format, &logged);
        log.write(&line);
    }
    connection.put(answer, question.head_only, question.is_old, clock);
}

/// Sends the output and the body, for as long as nobody else waits for a worker.
fn send(shared: &Shared, connection: &mut Connection) -> Result<Sent, Broken> {
    let mut body = connection.body.take().unwrap_or_default();
    let sent = loop {
        let socket = connection.socket.as_fd();
        match body.send(&mut connection.output, socket, SHARE)? {
            Sent::All => return Ok(Sent::All),
            sent if !shared.queue.is_empty() || shared.phase() == Phase::Stopped => break sent,
            // A client on the same machine or network has room again in no time.
            Sent::Blocked if !connection.is_writable(PATIENCE) => break Sent::Blocked,
            Sent::Blocked | Sent::Yielded => {}
        }
    };
    connection.body = Some(body);
    connection.output.compact();
    connection.deadline = Instant::now() + shared.limits.write_timeout;
    Ok(sent)
}

/// What is worth doing once the client has its answer.
fn after(shared: &Shared, question: &Question, reader: &mut Option<Reader>) {
    let Route::Nar { hash, .. } = question.route else {
        return;
    };
    let Ok(reader) = open(shared, reader) else {
        return;
    };
    if let Ok(Some(entry)) = shared.context.find(reader, hash) {
        crate::handlers::nar::after(&shared.context, &entry);
    }
}

/// The worker's own view of the store, opened when it is first needed.
fn open<'r>(
    shared: &Shared,
    reader: &'r mut Option<Reader>,
) -> Result<&'r mut Reader, floe_store::StoreError> {
    match reader {
        Some(reader) => Ok(reader),
        None => {
            let store = LiveStore::open(shared.context.layout.clone(), DATABASE_PATIENCE)?;
            Ok(reader.insert(Reader::new(store)))
        }
    }
}

/// After so many bytes a worker looks whether somebody else waits.
const SHARE: u64 = 8 * 1024 * 1024;

/// How long a worker that has nothing else to do waits for a socket, which saves handing the
/// connection back and forth.
const PATIENCE: Duration = Duration::from_millis(10);

/// How long a question waits for Nix to release the database. Clients wait longer than that.
const DATABASE_PATIENCE: Duration = Duration::from_secs(20);
