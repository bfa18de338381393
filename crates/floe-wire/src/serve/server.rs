//! The other side of a connection of the serve protocol: `nix-store --serve`.

use std::collections::BTreeSet;

use floe_format::nar::read::{NarError, NarReader};
use floe_format::{PathInfo, StoreDir, StorePath};

use super::export::{self, ImportedPath};
use super::{CLIENT_MAGIC, Command, OFFERED, SERVER_MAGIC};
use crate::error::{WireError, beginning};
use crate::input::Input;
use crate::output;
use crate::receive_buffer::ReceiveBuffer;
use crate::version::Version;
use crate::worker::BuildResult;
use crate::worker::path_info::{write_optional_path, write_paths};
use crate::worker::realisation::write_outputs;

/// The other side of a connection of the serve protocol: it gets the client's bytes and returns
/// events.
#[derive(Debug)]
pub struct ServerSession {
    dir: StoreDir,
    version: Version,
    state: State,
    buffer: ReceiveBuffer,
}

#[derive(Debug)]
enum State {
    Greeting,
    Command,
    /// Within a NAR of this many bytes.
    Nar(u64),
    /// Before an entry of an export.
    Entry,
    /// Within the NAR of an entry.
    EntryNar(Box<NarReader>),
    /// After the NAR of an entry.
    EntryInfo,
}

/// An event of [`ServerSession`].
#[derive(Debug, PartialEq, Eq)]
pub enum ServerEvent<'a> {
    /// The client speaks this version.
    Opened(Version),
    /// A command. After [`Command::AddToStoreNar`], its NAR follows as data, and after
    /// [`Command::ImportPaths`], for each path [`ServerEvent::Entry`], its NAR and
    /// [`ServerEvent::Imported`].
    Command(Command),
    /// The next bytes of the NAR.
    Data(&'a [u8]),
    /// The NAR has ended.
    DataEnd,
    /// A path of an export begins: its NAR follows.
    Entry,
    /// The facts of the path whose NAR came before.
    Imported(ImportedPath),
    /// The export has ended.
    ImportEnd,
}

impl ServerSession {
    /// Makes a session.
    pub fn new(dir: StoreDir) -> ServerSession {
        ServerSession {
            dir,
            version: OFFERED,
            state: State::Greeting,
            buffer: ReceiveBuffer::default(),
        }
    }

    /// Makes a session of a client that sends nothing but an export, as after
    /// [`Command::ImportPaths`].
    pub fn of_import(dir: StoreDir) -> ServerSession {
        ServerSession {
            state: State::Entry,
            ..ServerSession::new(dir)
        }
    }

    /// Returns space for bytes of the client. It is never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Adds bytes that were written to the space.
    pub fn fill(&mut self, len: usize) {
        self.buffer.fill(len);
    }

    /// Returns whether the client may end the connection here: between two commands, or before its
    /// first byte.
    pub fn is_idle(&self) -> bool {
        let is_between = matches!(self.state, State::Greeting | State::Command);
        is_between && self.buffer.filled().is_empty()
    }

    /// Returns the next event, or `None` until more bytes arrive. Appends the greeting to `output`.
    ///
    /// Errors: the client breaks the protocol. The session cannot be used afterwards.
    pub fn next_event(
        &mut self,
        output: &mut Vec<u8>,
    ) -> Result<Option<ServerEvent<'_>>, WireError> {
        match &mut self.state {
            State::Greeting => {
                let Some(version) = self.buffer.parse(parse_greeting)? else {
                    return Ok(None);
                };
                output::number(output, SERVER_MAGIC);
                output::number(output, OFFERED.to_number());
                self.version = version;
                self.state = State::Command;
                Ok(Some(ServerEvent::Opened(version)))
            }
            State::Command => {
                let (dir, version) = (&self.dir, self.version);
                let parsed = self
                    .buffer
                    .parse(|input| Command::parse(input, dir, version))?;
                match &parsed {
                    Some(Command::AddToStoreNar(info)) => self.state = State::Nar(info.nar_size),
                    Some(Command::ImportPaths) => self.state = State::Entry,
                    _ => {}
                }
                Ok(parsed.map(ServerEvent::Command))
            }
            State::Nar(0) => {
                self.state = State::Command;
                Ok(Some(ServerEvent::DataEnd))
            }
            State::Nar(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX);
                let data = self.buffer.take(len);
                *left -= data.len() as u64;
                Ok((!data.is_empty()).then_some(ServerEvent::Data(data)))
            }
            State::Entry => match self.buffer.parse(export::read_entry)? {
                None => Ok(None),
                Some(true) => {
                    self.state = State::EntryNar(Box::new(NarReader::new()));
                    Ok(Some(ServerEvent::Entry))
                }
                Some(false) => {
                    self.state = State::Command;
                    Ok(Some(ServerEvent::ImportEnd))
                }
            },
            State::EntryNar(_) => self.next_of_entry(),
            State::EntryInfo => {
                let dir = &self.dir;
                let imported = self.buffer.parse(|input| export::read_info(input, dir))?;
                if imported.is_some() {
                    self.state = State::Entry;
                }
                Ok(imported.map(ServerEvent::Imported))
            }
        }
    }

    /// A NAR in an export has no length in front. Its own format shows where it ends.
    fn next_of_entry(&mut self) -> Result<Option<ServerEvent<'_>>, WireError> {
        let State::EntryNar(reader) = &mut self.state else {
            return Ok(None);
        };
        if reader.is_finished() {
            self.state = State::EntryInfo;
            return Ok(Some(ServerEvent::DataEnd));
        }
        let begin = reader.offset();
        let mut input = self.buffer.filled();
        let invalid = |error: NarError| WireError::Nar {
            path: "an exported path".into(),
            reason: error.to_string(),
        };
        while !reader.is_finished() && reader.next(&mut input).map_err(invalid)?.is_some() {}
        // A NAR in memory has the length of the bytes that are there, so it fits.
        let len = usize::try_from(reader.offset() - begin).unwrap_or(usize::MAX);
        let data = self.buffer.take(len);
        Ok((!data.is_empty()).then_some(ServerEvent::Data(data)))
    }

    /// Appends the reply to [`Command::QueryValidPaths`] or [`Command::QueryClosure`].
    pub fn reply_paths(&self, paths: &BTreeSet<StorePath>, output: &mut Vec<u8>) {
        write_paths(output, &self.dir, paths);
    }

    /// Appends the metadata of one path of [`Command::QueryPathInfos`].
    pub fn reply_info(&self, info: &PathInfo, output: &mut Vec<u8>) {
        write_optional_path(output, &self.dir, Some(&info.path));
        write_optional_path(output, &self.dir, info.deriver.as_ref());
        write_paths(output, &self.dir, &info.references);
        // The size of a download, which is not known.
        output::number(output, info.nar_size);
        output::number(output, info.nar_size);
        if self.version.minor >= 4 {
            output::text(output, info.nar_hash.to_nix32());
            let ca = info.ca.as_ref().map(ToString::to_string);
            output::text(output, ca.unwrap_or_default());
            output::texts(output, info.signatures.iter().map(ToString::to_string));
        }
    }

    /// Appends the end of the reply to [`Command::QueryPathInfos`].
    pub fn reply_info_end(&self, output: &mut Vec<u8>) {
        output::text(output, "");
    }

    /// Appends the reply to [`Command::AddToStoreNar`] or [`Command::ImportPaths`].
    pub fn reply_added(&self, output: &mut Vec<u8>) {
        output::number(output, 1);
    }

    /// Appends the reply to [`Command::BuildPaths`]: the status of a failure with its message.
    pub fn reply_built(&self, failure: Option<(u64, &str)>, output: &mut Vec<u8>) {
        match failure {
            None => output::number(output, 0),
            Some((status, message)) => {
                output::number(output, status);
                output::text(output, message);
            }
        }
    }

    /// Appends the reply to [`Command::BuildDerivation`] (`BuildResult`).
    pub fn reply_build_result(&self, result: &BuildResult, output: &mut Vec<u8>) {
        output::number(output, result.status);
        output::text(output, &result.message);
        if self.version.minor >= 3 {
            // How often it was built, whether it was different each time, and when.
            (0..4).for_each(|_| output::number(output, 0));
        }
        if self.version.minor >= 6 {
            write_outputs(output, &result.outputs);
        }
    }

    /// Appends the beginning of an entry of the reply to [`Command::ExportPaths`], after which the
    /// NAR follows.
    pub fn reply_entry(&self, output: &mut Vec<u8>) {
        export::write_entry(output);
    }

    /// Appends the facts of an entry, after its NAR.
    pub fn reply_entry_info(&self, info: &PathInfo, output: &mut Vec<u8>) {
        export::write_info(output, info, &self.dir);
    }

    /// Appends the end of the reply to [`Command::ExportPaths`].
    pub fn reply_export_end(&self, output: &mut Vec<u8>) {
        export::write_end(output);
    }
}

/// Reads the first numbers of the client, and returns the version to speak.
fn parse_greeting(input: &mut Input<'_>) -> Result<Version, WireError> {
    let magic = input.number()?;
    if magic != CLIENT_MAGIC {
        let beginning = beginning(&magic.to_le_bytes());
        return Err(WireError::Magic { beginning });
    }
    let found = Version::from_number(input.number()?);
    if found.major == OFFERED.major && found >= OLDEST_CLIENT {
        Ok(found.min(OFFERED))
    } else {
        Err(WireError::Version {
            found,
            needed: OLDEST_CLIENT,
        })
    }
}

/// The oldest version of a client: that of Nix 1.10. Messages of older ones have other parts.
const OLDEST_CLIENT: Version = Version { major: 2, minor: 2 };

#[cfg(test)]
mod tests {
    use floe_format::Hash;
    use proptest::prelude::*;

    use super::*;
    use crate::client::{ClientEvent, ClientSession};
    use crate::protocol::Protocol;
    use crate::serve::write_request;
    use crate::worker::{Reply, Request};

    fn info() -> PathInfo {
        let path = |digit: &str| StorePath::parse(&format!("{}-x", digit.repeat(32))).unwrap();
        PathInfo {
            nar_hash: Hash::sha256([7; 32]),
            nar_size: 5,
            references: [path("1"), path("2")].into(),
            deriver: Some(path("3")),
            signatures: [].into(),
            ca: None,
            registration_time: None,
            ultimate: false,
            path: path("1"),
        }
    }

    fn requests() -> Vec<Request> {
        let paths: BTreeSet<StorePath> = info().references;
        vec![
            Request::QueryValidPaths {
                paths: paths.clone(),
                substitute: true,
                lock: false,
            },
            Request::QueryPathInfo(info().path),
            Request::QueryClosure(paths),
            Request::AddToStoreNar {
                info: Box::new(info()),
                repair: false,
                dont_check_sigs: false,
            },
            Request::QueryPathInfo(info().path),
        ]
    }

    proptest! {
        #[test]
        fn client_of_floe_understands_the_replies_in_any_pieces(
            sent_len in 1..100_usize,
            received_len in 1..100_usize,
        ) {
            let dir = StoreDir::default();
            let mut sent = Vec::new();
            let mut client = ClientSession::new(Protocol::Serve, dir.clone(), &mut sent);
            for request in requests() {
                prop_assert!(write_request(&request, &mut sent, &dir));
                if let Request::AddToStoreNar { .. } = request {
                    sent.extend_from_slice(b"a nar");
                }
                client.expect(request.reply_kind());
            }
            let mut server = ServerSession::new(dir);
            let (mut replies, mut nar, mut infos) = (Vec::new(), Vec::new(), 0);
            for piece in sent.chunks(sent_len) {
                server.space()[..piece.len()].copy_from_slice(piece);
                server.fill(piece.len());
                loop {
                    let mut greeting = Vec::new();
                    let command = match server.next_event(&mut greeting).unwrap() {
                        None => break,
                        Some(ServerEvent::Command(command)) => Some(command),
                        Some(ServerEvent::Data(data)) => {
                            nar.extend_from_slice(data);
                            None
                        }
                        Some(_) => None,
                    };
                    replies.extend_from_slice(&greeting);
                    match command {
                        Some(Command::QueryValidPaths { paths, substitute, lock }) => {
                            prop_assert!(substitute && !lock);
                            server.reply_paths(&paths, &mut replies);
                        }
                        Some(Command::QueryPathInfos(_)) => {
                            if infos == 0 {
                                server.reply_info(&info(), &mut replies);
                            }
                            infos += 1;
                            server.reply_info_end(&mut replies);
                        }
                        Some(Command::QueryClosure { paths, include_outputs }) => {
                            prop_assert!(!include_outputs);
                            server.reply_paths(&paths, &mut replies);
                        }
                        Some(Command::AddToStoreNar(added)) => {
                            prop_assert_eq!(*added, info());
                            server.reply_added(&mut replies);
                        }
                        other => prop_assert_eq!(other, None),
                    }
                }
            }
            prop_assert!(server.is_idle());
            prop_assert_eq!(nar, b"a nar");
            let mut received = Vec::new();
            for piece in replies.chunks(received_len) {
                client.space()[..piece.len()].copy_from_slice(piece);
                client.fill(piece.len());
                while let Some(event) = client.next_event().unwrap() {
                    if let ClientEvent::Replied(reply) = event {
                        received.push(reply);
                    }
                }
            }
            let expected = [
                Reply::Paths(info().references),
                Reply::PathInfo(Some(Box::new(info()))),
                Reply::Paths(info().references),
                Reply::Added,
                Reply::PathInfo(None),
            ];
            prop_assert_eq!(received, expected);
        }

        #[test]
        fn exports_are_read_as_they_were_written(piece_len in 1..100_usize) {
            let dir = StoreDir::default();
            let mut nar = Vec::new();
            for word in ["nix-archive-1", "(", "type", "regular", "contents", "text", ")"] {
                output::text(&mut nar, word);
            }
            let mut sent = Vec::new();
            for number in [CLIENT_MAGIC, OFFERED.to_number(), 4] {
                output::number(&mut sent, number);
            }
            for _ in 0..2 {
                export::write_entry(&mut sent);
                sent.extend_from_slice(&nar);
                export::write_info(&mut sent, &info(), &dir);
            }
            export::write_end(&mut sent);
            let mut server = ServerSession::new(dir);
            let (mut contents, mut events) = (Vec::new(), Vec::new());
            for piece in sent.chunks(piece_len) {
                server.space()[..piece.len()].copy_from_slice(piece);
                server.fill(piece.len());
                while let Some(event) = server.next_event(&mut Vec::new()).unwrap() {
                    match event {
                        ServerEvent::Data(data) => contents.extend_from_slice(data),
                        ServerEvent::Imported(path) => events.push(path.path),
                        _ => {}
                    }
                }
            }
            prop_assert!(server.is_idle());
            prop_assert_eq!(contents, [&*nar, &*nar].concat());
            prop_assert_eq!(events, vec![info().path; 2]);
        }
    }
}
