//! The states of a connection, and what it waits for.

use crate::auth::logins::PasswordCheck;
use crate::body::Body;
use crate::deferred::DeferredRequest;
use crate::net::connection::receiving::Receiving;
use crate::net::transport::Received;

/// The state of a connection. [`super`] has the transitions.
#[derive(Debug)]
pub(crate) enum State {
    /// No byte of a request has come.
    Idle,
    /// A part of a head has come.
    ReadingHead,
    /// A password has to be verified. The head of its request is still in the input.
    Verifying(Box<PasswordCheck>),
    /// A worker has to compute a response. The write buffer may hold earlier responses.
    Deferred(Box<DeferredRequest>),
    /// The body of a request is received. The write buffer may hold earlier responses.
    Receiving(Box<Receiving>),
    /// The write buffer is sent, and then the body, if any.
    Sending(Option<Box<Streaming>>),
    /// The last response is sent, and the input is discarded.
    Draining,
}

/// A response whose body a worker sends.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) body: Body,
    /// The request, for the work that follows when the body is sent.
    pub(crate) request: Option<Box<DeferredRequest>>,
}

/// The knowledge about bytes in the socket. Events are edge-triggered: each is reported once,
/// so an event must not be forgotten before the socket is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadSide {
    /// There may be bytes.
    Ready,
    /// There were no more bytes at the last read. An event will report new ones.
    Drained,
    /// The client has closed its end, which is reported only once. So the socket is read until its
    /// end, even after a read that returned less than a full buffer.
    HungUp,
    /// The end was read.
    Eof,
}

/// The meaning of an event of a socket. The greater of two events tells more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SocketEvent {
    Ready,
    HungUp,
}

/// The thing that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    AwaitSocket,
    AwaitWorker,
    /// The thread that verifies passwords.
    AwaitLogin,
    /// The decision whether the client that a proxy has named may connect.
    Admit,
    /// Its next turn, after the other connections of the thread.
    Requeue,
    Close,
}

/// The resources of the server that are all in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) connections: bool,
    pub(crate) log_decoders: bool,
}

/// Whether a connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    None,
    /// Its time is over.
    Timeout,
    /// It is idle or slow, and others need its place.
    ForRoom,
    /// It is slow, and others need its decoder for a build log.
    ForLogDecoder,
}

impl ReadSide {
    pub(super) fn after_event(self, event: SocketEvent) -> ReadSide {
        match (self, event) {
            (ReadSide::Eof, _) => ReadSide::Eof,
            (ReadSide::HungUp, _) | (_, SocketEvent::HungUp) => ReadSide::HungUp,
            (ReadSide::Ready | ReadSide::Drained, SocketEvent::Ready) => ReadSide::Ready,
        }
    }

    pub(super) fn after_read(self, received: Received) -> ReadSide {
        match (received, self) {
            (Received::Closed, _) => ReadSide::Eof,
            (Received::Blocked, _) => ReadSide::Drained,
            (Received::Bytes { .. }, ReadSide::HungUp) => ReadSide::HungUp,
            (Received::Bytes { drained: true, .. }, _) => ReadSide::Drained,
            (Received::Bytes { drained: false, .. }, _) => ReadSide::Ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_read_drains_unless_the_client_has_hung_up() {
        let short = Received::Bytes {
            len: 1,
            drained: true,
        };
        let full = Received::Bytes {
            len: 1,
            drained: false,
        };
        assert_eq!(ReadSide::Ready.after_read(short), ReadSide::Drained);
        assert_eq!(ReadSide::Ready.after_read(full), ReadSide::Ready);
        let hung_up = ReadSide::Drained.after_event(SocketEvent::HungUp);
        assert_eq!(hung_up.after_event(SocketEvent::Ready), hung_up);
        assert_eq!(hung_up.after_read(short), hung_up);
        assert_eq!(hung_up.after_read(Received::Closed), ReadSide::Eof);
        let eof = ReadSide::Eof.after_event(SocketEvent::Ready);
        assert_eq!(eof, ReadSide::Eof, "the end stays the end");
        let drained = ReadSide::Ready.after_read(Received::Blocked);
        assert_eq!(drained.after_event(SocketEvent::Ready), ReadSide::Ready);
    }
}
