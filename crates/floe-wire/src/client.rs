//! The client's side of a connection, for both protocols.

use std::collections::VecDeque;

use floe_format::StoreDir;
use floe_format::nar::read::{NarError, NarReader};

use crate::error::{WireError, beginning};
use crate::output;
use crate::protocol::Protocol;
use crate::receive_buffer::ReceiveBuffer;
use crate::serve;
use crate::version::Version;
use crate::worker::{
    CLIENT_MAGIC, DaemonError, ERROR, LogMessage, Reply, ReplyKind, SERVER_MAGIC, ServerInfo,
};

/// The client's side of a connection to a daemon, or to `nix-store --serve`: it gets the bytes of
/// the other side and returns events.
///
/// Requests may be sent at any time, also before the daemon has sent its first byte. Replies come
/// in the order of the requests.
#[derive(Debug)]
pub struct ClientSession {
    protocol: Protocol,
    dir: StoreDir,
    /// The version that both sides speak, once it is known.
    version: Version,
    state: State,
    buffer: ReceiveBuffer,
    /// The replies that have not arrived, in their order.
    expected: VecDeque<ReplyKind>,
}

#[derive(Debug)]
enum State {
    /// Before the version of the daemon.
    Greeting,
    /// Before the facts about the daemon.
    Info(Version),
    /// Before the message that ends the start.
    Starting(ServerInfo),
    /// Before a message of the log.
    Log,
    /// Before the reply to the oldest request.
    Reply,
    /// Within the NAR of the oldest request.
    Nar(Box<NarReader>),
}

/// An event of [`ClientSession`].
#[derive(Debug, PartialEq, Eq)]
pub enum ClientEvent<'a> {
    /// The daemon accepts requests.
    Opened(ServerInfo),
    /// A message of the log of the oldest request.
    Log(LogMessage),
    /// The oldest request has succeeded. After [`Reply::Nar`], the NAR follows.
    Replied(Reply),
    /// The oldest request has failed, perhaps after [`Reply::Nar`]. The connection can still be
    /// used.
    Failed(DaemonError),
    /// The next bytes of the NAR.
    NarData(&'a [u8]),
    /// The NAR is complete.
    NarEnd,
}

impl ClientSession {
    /// Makes a session. Appends the first bytes to `output`.
    pub fn new(protocol: Protocol, dir: StoreDir, output: &mut Vec<u8>) -> ClientSession {
        match protocol {
            Protocol::Serve => serve::write_greeting(output),
            Protocol::Worker => {
                output::number(output, CLIENT_MAGIC);
                output::number(output, Version::OFFERED.to_number());
                // Once the affinity to a CPU, and a file whose space a collection would need.
                output::boolean(output, false);
                output::boolean(output, false);
            }
        }
        ClientSession {
            protocol,
            dir,
            version: Version::OFFERED,
            state: State::Greeting,
            buffer: ReceiveBuffer::default(),
            expected: VecDeque::new(),
        }
    }

    /// Expects the reply to a request that was sent. Call it in the order of the requests, and
    /// before the first byte of the reply is added.
    pub fn expect(&mut self, reply: ReplyKind) {
        self.expected.push_back(reply);
    }

    /// Returns space for bytes of the daemon. It is never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Adds bytes that were written to the space.
    pub fn fill(&mut self, len: usize) {
        self.buffer.fill(len);
    }

    /// Returns whether the daemon owes nothing: it has started, and all replies have arrived.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Log) && self.expected.is_empty()
    }

    /// Returns the error for a peer that ends the connection before it has sent the first bytes of
    /// the protocol; `None` if it has sent them.
    pub fn error_at_end(&self) -> Option<WireError> {
        matches!(self.state, State::Greeting).then(|| self.not_a_daemon())
    }

    fn not_a_daemon(&self) -> WireError {
        WireError::Magic {
            beginning: beginning(self.buffer.filled()),
        }
    }

    /// Returns the next event, or `None` until more bytes arrive.
    ///
    /// Errors: the daemon breaks the protocol. The session cannot be used afterwards.
    pub fn next_event(&mut self) -> Result<Option<ClientEvent<'_>>, WireError> {
        loop {
            match &mut self.state {
                State::Greeting if self.protocol == Protocol::Serve => {
                    return self.next_of_serve_greeting();
                }
                State::Greeting => match self.buffer.parse(parse_greeting) {
                    Ok(Some(version)) => {
                        self.version = version;
                        self.state = State::Info(version);
                    }
                    Ok(None) => return Ok(None),
                    Err(WireError::Magic { .. }) => return Err(self.not_a_daemon()),
                    Err(error) => return Err(error),
                },
                State::Info(version) => {
                    let version = *version;
                    match self
                        .buffer
                        .parse(|input| ServerInfo::parse(input, version))?
                    {
                        Some(info) => self.state = State::Starting(info),
                        None => return Ok(None),
                    }
                }
                State::Starting(info) => {
                    let info = std::mem::take(info);
                    return self.next_of_start(info);
                }
                State::Log if self.protocol == Protocol::Serve => {
                    // Every message is a reply.
                    if self.buffer.filled().is_empty() {
                        return Ok(None);
                    }
                    self.state = State::Reply;
                }
                State::Log => return self.next_of_log(),
                State::Reply => return self.next_reply(),
                State::Nar(_) => return self.next_of_nar(),
            }
        }
    }

    fn next_of_serve_greeting(&mut self) -> Result<Option<ClientEvent<'_>>, WireError> {
        match self.buffer.parse(serve::read_greeting) {
            Ok(Some(())) => {
                self.state = State::Log;
                Ok(Some(ClientEvent::Opened(ServerInfo::default())))
            }
            Ok(None) => Ok(None),
            Err(WireError::Magic { .. }) => Err(self.not_a_daemon()),
            Err(error) => Err(error),
        }
    }

    fn next_of_start(&mut self, info: ServerInfo) -> Result<Option<ClientEvent<'_>>, WireError> {
        let message = self.buffer.parse(LogMessage::parse)?;
        let event = match message {
            Some(LogMessage::Last) => {
                self.state = State::Log;
                return Ok(Some(ClientEvent::Opened(info)));
            }
            // The daemon ends the connection after an error.
            Some(LogMessage::Error(error)) => Some(ClientEvent::Failed(error)),
            Some(message) => Some(ClientEvent::Log(message)),
            None => None,
        };
        self.state = State::Starting(info);
        Ok(event)
    }

    fn next_of_log(&mut self) -> Result<Option<ClientEvent<'_>>, WireError> {
        let message = self.buffer.parse(LogMessage::parse)?;
        match message {
            None => Ok(None),
            Some(_) if self.expected.is_empty() => Err(WireError::Unexpected {
                len: self.buffer.filled().len(),
            }),
            Some(LogMessage::Last) => {
                self.state = State::Reply;
                self.next_reply()
            }
            Some(LogMessage::Error(error)) => {
                self.expected.pop_front();
                self.state = State::Log;
                Ok(Some(ClientEvent::Failed(error)))
            }
            Some(message) => Ok(Some(ClientEvent::Log(message))),
        }
    }

    fn next_reply(&mut self) -> Result<Option<ClientEvent<'_>>, WireError> {
        let ClientSession {
            protocol,
            dir,
            version,
            buffer,
            expected,
            ..
        } = self;
        let Some(kind) = expected.front() else {
            return Err(WireError::Unexpected {
                len: buffer.filled().len(),
            });
        };
        let reply = match protocol {
            Protocol::Worker => buffer.parse(|input| Reply::parse(input, kind, (dir, *version)))?,
            Protocol::Serve => buffer.parse(|input| serve::read_reply(input, kind, dir))?,
        };
        let Some(reply) = reply else {
            return Ok(None);
        };
        if reply == Reply::Compressed {
            buffer.decompress()?;
        }
        self.state = match reply {
            Reply::Nar => State::Nar(Box::new(NarReader::new())),
            _ => {
                self.expected.pop_front();
                State::Log
            }
        };
        Ok(Some(ClientEvent::Replied(reply)))
    }

    /// A NAR has no length in front. Its own format shows where it ends.
    fn next_of_nar(&mut self) -> Result<Option<ClientEvent<'_>>, WireError> {
        let State::Nar(reader) = &mut self.state else {
            return Ok(None);
        };
        if reader.is_finished() {
            self.expected.pop_front();
            self.state = State::Log;
            return Ok(Some(ClientEvent::NarEnd));
        }
        self.buffer.refill()?;
        let begin = reader.offset();
        if begin == 0 && self.protocol == Protocol::Worker && self.buffer.begins_with(ERROR) {
            // The daemon has noticed too late that it cannot send the NAR.
            return self.next_of_log();
        }
        let mut input = self.buffer.filled();
        let invalid = |error: NarError| WireError::Nar {
            path: match self.expected.front() {
                Some(ReplyKind::Nar(path)) => path.to_string(),
                _ => String::new(),
            },
            reason: error.to_string(),
        };
        while !reader.is_finished() && reader.next(&mut input).map_err(invalid)?.is_some() {}
        // A NAR in memory has the length of the bytes that are there, so it fits.
        let len = usize::try_from(reader.offset() - begin).unwrap_or(usize::MAX);
        match len {
            0 => Ok(None),
            len => Ok(Some(ClientEvent::NarData(self.buffer.take(len)))),
        }
    }
}

/// Reads the first numbers of the daemon, and returns the version to speak.
fn parse_greeting(input: &mut crate::Input<'_>) -> Result<Version, WireError> {
    let magic = input.number()?;
    if magic != SERVER_MAGIC {
        let beginning = beginning(&magic.to_le_bytes());
        return Err(WireError::Magic { beginning });
    }
    let found = Version::from_number(input.number()?);
    if found.major != Version::OFFERED.major || found < Version::MINIMUM {
        return Err(WireError::Version {
            found,
            needed: Version::MINIMUM,
        });
    }
    Ok(found.min(Version::OFFERED))
}
