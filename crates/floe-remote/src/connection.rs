//! A connection to a daemon, over which many threads send requests.
//!
//! A sender first records the recipient of the reply, and then writes the request. One thread reads
//! all replies. It stops reading only while the worker that receives a NAR is slower than the
//! daemon, so neither side waits for the other one to read.

mod nar_body;
mod reader;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use floe_format::{PathInfo, StoreDir};
use floe_transfer::{Buffering, Cancel, Error, Session};
use floe_wire::worker::{Reply, ReplyKind, Request, ServerInfo};
use floe_wire::{ClientSession, Protocol, frames, serve};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) use self::nar_body::NarBody;
use self::nar_body::NarFeed;
use self::reader::Reader;
use self::writer::{BUFFER_LEN, Writer};
use crate::error::RemoteError;
use crate::stream::{Peer, Stream};

/// Receives the reply to a request, on the thread that reads them. It must not block.
pub(crate) type ReplyCallback = Box<dyn FnOnce(Result<Reply, RemoteError>) + Send>;

/// Opens another connection to the same daemon.
pub(crate) type Open = Box<dyn Fn() -> Result<Connection, Error> + Send + Sync>;

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    writer: Mutex<Writer>,
}

/// The state that the senders share with the reading thread.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The store URI, for messages.
    pub(crate) name: String,
    pub(crate) dir: StoreDir,
    protocol: Protocol,
    pub(crate) cancel: Cancel,
    peer: Peer,
    /// Whether floe compresses the connection if the daemon can do that.
    wants_compression: bool,
    /// Whether the next request is the one that begins the compression.
    begins_compression: AtomicBool,
    /// Whether the owner needs the connection no longer.
    is_closing: AtomicBool,
    state: Mutex<State>,
    /// Wakes the threads that wait until the connection is open.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until the daemon has started.
    info: Option<ServerInfo>,
    /// The receivers of replies that have not arrived, in the order of the requests.
    pending: VecDeque<Pending>,
    /// The error that ended the connection.
    failure: Option<RemoteError>,
}

/// A request without its reply.
struct Pending {
    kind: ReplyKind,
    recipient: Recipient,
}

enum Recipient {
    Reply(ReplyCallback),
    Nar(NarFeed),
}

/// The daemon at the other end of a stream.
#[derive(Clone, Debug)]
pub(crate) struct DaemonAddress {
    pub(crate) protocol: Protocol,
    /// The store URI, for messages.
    pub(crate) name: String,
    pub(crate) dir: StoreDir,
    /// Whether the connection is compressed if another floe is at its other end.
    pub(crate) wants_compression: bool,
}

/// The exclusive right to send.
pub(crate) struct Sender<'a> {
    shared: &'a Shared,
    writer: MutexGuard<'a, Writer>,
}

impl Connection {
    /// Begins a connection. Sends the first bytes of the protocol, and waits for nothing. Calls
    /// `opened` once, when requests can succeed or the connection has failed.
    pub(crate) fn open(
        stream: Stream,
        address: DaemonAddress,
        session: &Session,
        opened: impl FnOnce() + Send + 'static,
    ) -> Result<Connection, Error> {
        let DaemonAddress {
            protocol,
            name,
            dir,
            wants_compression,
        } = address;
        let mut buffer = Vec::new();
        let client = ClientSession::new(protocol, dir.clone(), &mut buffer);
        let shared = Arc::new(Shared {
            name,
            dir,
            protocol,
            cancel: session.cancel.clone(),
            peer: stream.peer,
            wants_compression,
            begins_compression: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let reader = Reader::new(shared.clone(), client, &session.events, opened);
        let output = stream.output;
        thread::Builder::new()
            .name("floe-remote".into())
            .spawn(move || reader.run(output))
            .map_err(Error::Thread)?;
        let connection = Connection {
            shared,
            writer: Mutex::new(Writer::new(stream.input, buffer)),
        };
        connection.lock().flush();
        Ok(connection)
    }

    /// Returns the store URI.
    pub(crate) fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the protocol.
    pub(crate) fn protocol(&self) -> Protocol {
        self.shared.protocol
    }

    /// Returns the store directory.
    pub(crate) fn dir(&self) -> &StoreDir {
        &self.shared.dir
    }

    /// Whether the connection is compressed if another floe is at its other end.
    pub(crate) fn wants_compression(&self) -> bool {
        self.shared.wants_compression
    }

    /// Returns the facts about the daemon, or the error that ended the connection; `None` before
    /// the daemon has started.
    pub(crate) fn info(&self) -> Option<Result<ServerInfo, RemoteError>> {
        let state = self.shared.state.lock();
        match (&state.failure, &state.info) {
            (Some(failure), _) => Some(Err(failure.clone())),
            (None, Some(info)) => Some(Ok(info.clone())),
            (None, None) => None,
        }
    }

    /// Whether the daemon had started, and the connection has ended since.
    pub(crate) fn has_ended_after_start(&self) -> bool {
        let state = self.shared.state.lock();
        state.info.is_some() && state.failure.is_some()
    }

    /// Waits until the daemon has started.
    pub(crate) fn wait_until_open(&self) -> Result<ServerInfo, RemoteError> {
        loop {
            if let Some(info) = self.info() {
                return info;
            }
            let mut state = self.shared.state.lock();
            if state.info.is_none() && state.failure.is_none() {
                self.shared.changed.wait(&mut state);
            }
        }
    }

    /// Waits for the exclusive right to send.
    pub(crate) fn lock(&self) -> Sender<'_> {
        self.sender(self.writer.lock())
    }

    fn sender<'a>(&'a self, writer: MutexGuard<'a, Writer>) -> Sender<'a> {
        let mut sender = Sender {
            shared: &self.shared,
            writer,
        };
        let order = Ordering::Relaxed;
        if self.shared.begins_compression.swap(false, order) {
            sender.compress();
        }
        sender
    }

    /// Returns the exclusive right to send, unless another thread has it.
    pub(crate) fn try_lock(&self) -> Option<Sender<'_>> {
        self.writer.try_lock().map(|writer| self.sender(writer))
    }

    /// Sends requests and waits for their replies, in the order of the requests.
    ///
    /// Errors: the first one.
    pub(crate) fn request_all(
        &self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Reply>, RemoteError> {
        let mut replies = Vec::new();
        let mut sender = self.lock();
        for request in requests {
            replies.push(sender.send_and_expect(&request, |_| {}));
        }
        sender.flush();
        drop(sender);
        replies.into_iter().map(|reply| reply.wait()).collect()
    }

    /// Requests a NAR.
    pub(crate) fn read_nar(&self, info: &PathInfo, buffering: Buffering) -> NarBody {
        let path = &info.path;
        let (feed, body) = NarFeed::new((path, info.nar_size), buffering, self.shared.clone());
        let mut sender = self.lock();
        let request = Request::NarFromPath(path.clone());
        sender.send_to(&request, Recipient::Nar(feed));
        sender.flush();
        body
    }

    /// Ends the connection at once.
    pub(crate) fn abort(&self) {
        self.shared.peer.close();
    }
}

impl Drop for Connection {
    /// Ends the input of the daemon. The reading thread ends within a moment.
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
        self.writer.get_mut().close();
        if self.shared.state.lock().info.is_some() {
            self.shared.peer.end();
        } else {
            // ssh does not notice the end of its input before it is connected.
            self.shared.peer.close();
        }
    }
}

/// A reply that has not arrived.
#[derive(Debug)]
pub(crate) struct ExpectedReply(Receiver<Result<Reply, RemoteError>>, String);

impl ExpectedReply {
    /// Waits for the reply. A cancellation ends the connection, and so the wait.
    pub(crate) fn wait(self) -> Result<Reply, RemoteError> {
        let ExpectedReply(receiver, uri) = self;
        let lost = |_| RemoteError::Ended {
            uri,
            reason: "the thread that reads its replies has ended".into(),
        };
        receiver.recv().map_err(lost)?
    }

    /// As [`ExpectedReply::wait`], for at most a time.
    pub(crate) fn wait_at_most(self, time: Duration) -> Result<Reply, RemoteError> {
        match self.0.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Err(RemoteError::Query {
                uri: self.1,
                reason: format!(
                    "it did not reply within {} seconds; try again when its collection has ended",
                    time.as_secs()
                ),
            }),
            Ok(reply) => reply,
            Err(RecvTimeoutError::Disconnected) => self.wait(),
        }
    }
}

impl Sender<'_> {
    /// Sends a request. Call [`Sender::flush`] after the last one.
    pub(crate) fn send(&mut self, request: &Request, reply: ReplyCallback) {
        self.send_to(request, Recipient::Reply(reply));
    }

    /// Sends a request, and returns its future reply. Calls `arrived` first, which must not block.
    pub(crate) fn send_and_expect(
        &mut self,
        request: &Request,
        arrived: impl FnOnce(&Result<Reply, RemoteError>) + Send + 'static,
    ) -> ExpectedReply {
        let (sender, receiver) = mpsc::channel();
        let reply = Box::new(move |reply| {
            arrived(&reply);
            // The receiver is gone only after an error.
            let _: Result<(), _> = sender.send(reply);
        });
        self.send(request, reply);
        ExpectedReply(receiver, self.shared.name.clone())
    }

    /// Compresses all bytes that follow. The session decompresses those of the daemon.
    fn compress(&mut self) {
        self.send(&Request::Compress, Box::new(drop));
        if let Err(error) = self.writer.compress() {
            self.end(&error);
        }
    }

    fn send_to(&mut self, request: &Request, recipient: Recipient) {
        let pending = Pending {
            kind: request.reply_kind(),
            recipient,
        };
        let mut message = Vec::new();
        let is_known = match self.shared.protocol {
            Protocol::Serve => serve::write_request(request, &mut message, &self.shared.dir),
            Protocol::Worker => request.write(&mut message, &self.shared.dir),
        };
        let mut state = self.shared.state.lock();
        let failure = if is_known {
            state.failure.clone()
        } else {
            Some(RemoteError::Query {
                uri: self.shared.name.clone(),
                reason: match request {
                    Request::QueryPathFromHashPart(_) => {
                        "its protocol finds no path by a hash part; use ssh-ng://, or give whole \
                         paths"
                    }
                    _ => "its protocol has no such request; use ssh-ng://",
                }
                .into(),
            })
        };
        if let Some(failure) = failure {
            drop(state);
            pending.recipient.fail(failure);
            return;
        }
        state.pending.push_back(pending);
        drop(state);
        self.writer.buffer.append(&mut message);
        if self.writer.buffer.len() >= BUFFER_LEN {
            self.flush();
        }
    }

    /// Sends a part of a NAR: a frame, if the protocol has frames.
    ///
    /// Errors: the connection has ended.
    pub(crate) fn send_nar(&mut self, data: &[u8]) -> Result<(), RemoteError> {
        if data.is_empty() {
            return Ok(());
        }
        if self.shared.protocol == Protocol::Worker {
            let header = frames::header(data.len());
            self.writer.buffer.extend_from_slice(&header);
        }
        let written = if data.len() < BUFFER_LEN {
            self.writer.buffer.extend_from_slice(data);
            if self.writer.buffer.len() < BUFFER_LEN {
                Ok(())
            } else {
                self.writer.write_buffer()
            }
        } else {
            let written = self.writer.write_buffer();
            written.and_then(|()| self.writer.write(data))
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) => Err(self.end(&error)),
        }
    }

    /// Ends a NAR.
    pub(crate) fn end_nar(&mut self) {
        if self.shared.protocol == Protocol::Worker {
            self.writer.buffer.extend_from_slice(&frames::END);
        }
        self.flush();
    }

    /// Ends a NAR that is not whole, so that the other side refuses the path. Without frames, only
    /// the end of the connection shows that.
    pub(crate) fn abandon_nar(&mut self) {
        match self.shared.protocol {
            Protocol::Worker => self.end_nar(),
            Protocol::Serve => self.shared.peer.close(),
        }
    }

    /// Sends what is buffered. If that fails, the replies fail.
    pub(crate) fn flush(&mut self) {
        if let Err(error) = self.writer.flush() {
            self.end(&error);
        }
    }

    /// Ends the connection after a failed write, and returns its error. The reading thread reports
    /// the end, because it knows the reason.
    fn end(&mut self, error: &io::Error) -> RemoteError {
        self.writer.close();
        let mut state = self.shared.state.lock();
        let wait_max = Duration::from_secs(10);
        self.shared
            .changed
            .wait_while_for(&mut state, |state| state.failure.is_none(), wait_max);
        let failure = state.failure.clone();
        failure.unwrap_or_else(|| RemoteError::Ended {
            uri: self.shared.name.clone(),
            reason: error.to_string(),
        })
    }
}

impl Recipient {
    fn fail(self, error: RemoteError) {
        match self {
            Recipient::Reply(reply) => reply(Err(error)),
            Recipient::Nar(feed) => feed.fail(error),
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind.fmt(f)
    }
}

/// Reads the parameter `compression` of a store URI.
///
/// Errors: the text says which values there are.
pub(crate) fn parse_compression(value: &str) -> Result<bool, String> {
    match value {
        "none" => Ok(false),
        "zstd" => Ok(true),
        _ => Err(format!("compression={value}: use zstd or none")),
    }
}
