//! The daemon's side of a connection.

use floe_format::StoreDir;

use super::{
    CLIENT_MAGIC, DaemonError, LogMessage, Reply, Request, SERVER_MAGIC, ServerInfo, Version,
};
use crate::error::{WireError, beginning};
use crate::frames::FrameReader;
use crate::input::Input;
use crate::output;
use crate::receive_buffer::ReceiveBuffer;

/// The daemon's side of a connection: it gets the client's bytes and returns events.
#[derive(Debug)]
pub struct ServerSession {
    dir: StoreDir,
    info: ServerInfo,
    version: Version,
    state: State,
    buffer: ReceiveBuffer,
}

#[derive(Debug)]
enum State {
    Greeting,
    /// Before the version of the client.
    Version,
    /// Before the two numbers without a meaning.
    Starting(Version),
    /// Before the message that ends the start, or refuses the client.
    Opening,
    Request,
    Frames(FrameReader),
}

/// An event of [`ServerSession`].
#[derive(Debug, PartialEq, Eq)]
pub enum ServerEvent<'a> {
    /// The client speaks this version. The daemon may [refuse](ServerSession::refuse) it now.
    Opened(Version),
    /// A request. After one with [`Request::has_frames`], their contents follow.
    Request(Request),
    /// The next bytes of the frames.
    Data(&'a [u8]),
    /// The frames have ended. Their contents show whether they are complete.
    DataEnd,
}

impl ServerSession {
    /// Makes a session of a daemon that speaks at most this version.
    pub fn new(dir: StoreDir, info: ServerInfo, version: Version) -> ServerSession {
        ServerSession {
            dir,
            info,
            version: version.min(Version::OFFERED),
            state: State::Greeting,
            buffer: ReceiveBuffer::default(),
        }
    }

    /// Refuses requests that are longer than this number of bytes.
    pub fn limit_requests(&mut self, len: usize) {
        self.buffer.limit_messages(len);
    }

    /// Returns space for bytes of the client. It is never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Adds bytes that were written to the space.
    pub fn fill(&mut self, len: usize) {
        self.buffer.fill(len);
    }

    /// Returns whether the client may end the connection here: between two requests, or before its
    /// first byte.
    pub fn is_idle(&self) -> bool {
        let is_between = matches!(self.state, State::Greeting | State::Request);
        is_between && self.buffer.is_empty()
    }

    /// Returns the next event, or `None` until more bytes arrive. Appends to `output` what the
    /// start of the protocol demands.
    ///
    /// Errors: the client breaks the protocol. The session cannot be used afterwards.
    pub fn next_event(
        &mut self,
        output: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'_>>, WireError> {
        match &mut self.state {
            State::Greeting => {
                // Nix up to 2.23 sends its version only after this reply.
                if self.buffer.parse(parse_magic)?.is_none() {
                    return Ok(None);
                }
                output::number(output, SERVER_MAGIC);
                output::number(output, self.version.to_number());
                self.state = State::Version;
                self.next_event(output)
            }
            State::Version => {
                let own = self.version;
                let Some(version) = self.buffer.parse(|input| parse_version(input, own))? else {
                    return Ok(None);
                };
                self.state = State::Starting(version);
                self.next_event(output)
            }
            State::Starting(version) => {
                let version = *version;
                if self.buffer.parse(parse_obsolete)?.is_none() {
                    return Ok(None);
                }
                self.info.write(version, output);
                self.version = version;
                self.state = State::Opening;
                Ok(Some(ServerEvent::Opened(version)))
            }
            State::Opening => {
                LogMessage::Last.write(output);
                self.state = State::Request;
                self.next_event(output)
            }
            State::Request => {
                let dir = &self.dir;
                let request = self.buffer.parse(|input| Request::parse(input, dir))?;
                match &request {
                    Some(Request::Compress) => self.buffer.decompress()?,
                    Some(request) if request.has_frames() => {
                        self.state = State::Frames(FrameReader::new());
                    }
                    _ => {}
                }
                Ok(request.map(ServerEvent::Request))
            }
            State::Frames(frames) => {
                self.buffer.refill()?;
                let mut input = self.buffer.filled();
                let before = input.len();
                let len = frames.next(&mut input).map_or(0, <[u8]>::len);
                let read = before - input.len();
                if len > 0 {
                    self.buffer.take(read - len);
                    return Ok(Some(ServerEvent::Data(self.buffer.take(len))));
                }
                let has_ended = frames.has_ended();
                self.buffer.take(read);
                if !has_ended {
                    return Ok(None);
                }
                self.state = State::Request;
                Ok(Some(ServerEvent::DataEnd))
            }
        }
    }

    /// Appends the reply to the oldest request. A NAR follows apart.
    pub fn reply(&self, reply: &Reply, output: &mut Vec<u8>) {
        LogMessage::Last.write(output);
        reply.write(output, &self.dir, self.version);
    }

    /// Appends the reason why the daemon does not serve the client. This must follow
    /// [`ServerEvent::Opened`], and ends the connection.
    pub fn refuse(&self, error: DaemonError, output: &mut Vec<u8>) {
        LogMessage::Error(error).write(output);
    }

    /// Appends the failure of the oldest request.
    pub fn fail(&self, error: DaemonError, output: &mut Vec<u8>) {
        LogMessage::Error(error).write(output);
    }
}

/// Reads the first number of the client.
fn parse_magic(input: &mut Input<'_>) -> Result<(), WireError> {
    let magic = input.number()?;
    if magic != CLIENT_MAGIC {
        let beginning = beginning(&magic.to_le_bytes());
        return Err(WireError::Magic { beginning });
    }
    Ok(())
}

/// Reads the version of the client, and returns the one to speak.
fn parse_version(input: &mut Input<'_>, own: Version) -> Result<Version, WireError> {
    let found = Version::from_number(input.number()?);
    if found.major == own.major && found >= Version::MINIMUM {
        Ok(found.min(own))
    } else {
        Err(WireError::Version {
            found,
            needed: Version::MINIMUM,
        })
    }
}

/// Reads the two numbers that had a meaning once. The first announces a third one.
fn parse_obsolete(input: &mut Input<'_>) -> Result<(), WireError> {
    if input.boolean()? {
        input.number()?;
    }
    input.number()?;
    Ok(())
}
