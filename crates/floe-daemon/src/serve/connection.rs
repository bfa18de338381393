//! A connection of the serve protocol.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use floe_format::{Hash, PathInfo, StorePath};
use floe_hash::Sha256;
use floe_store::references_first;
use floe_wire::serve::{Command, ImportedPath, ServerEvent, ServerSession};

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::receive::Receiver;
use crate::stream::Stream;

/// A connection with the paths that have arrived on it.
///
/// A client may send many paths before it reads a reply. They are registered together, and their
/// replies follow, once the client waits.
pub(super) struct Connection<'s> {
    store: &'s HostedStore,
    session: ServerSession,
    stream: Stream,
    receiver: Option<Receiver<'s>>,
    /// The replies for paths that are not registered yet.
    owed: usize,
}

/// A part of the conversation that has arrived.
enum Received {
    Command(Command),
    /// A path of an export begins.
    Entry,
    Imported(ImportedPath),
    /// A NAR, or an export, has ended.
    End,
}

impl<'s> Connection<'s> {
    pub(super) fn new(store: &'s HostedStore, input: OwnedFd, output: OwnedFd) -> Connection<'s> {
        Connection {
            store,
            session: ServerSession::new(store.store_dir().clone()),
            stream: Stream::new(input, output),
            receiver: None,
            owed: 0,
        }
    }

    /// Makes a connection that gets nothing but an export.
    pub(super) fn of_import(store: &'s HostedStore, input: OwnedFd, output: OwnedFd) -> Self {
        let session = ServerSession::of_import(store.store_dir().clone());
        Connection {
            session,
            ..Connection::new(store, input, output)
        }
    }

    /// Returns the next command; `None` after the last one.
    pub(super) fn next_command(&mut self) -> Result<Option<Command>, HostError> {
        match self.next(&mut |_| Ok(()))? {
            Some(Received::Command(command)) => Ok(Some(command)),
            Some(_) => Err(floe_transfer::Error::Internal("a NAR without its command").into()),
            None if self.session.is_idle() => Ok(None),
            None => Err(HostError::Ended("a message".into())),
        }
    }

    /// Reads until something has ended. Passes the bytes of a NAR to `sink`. Returns `None` at the
    /// end of the connection.
    fn next(
        &mut self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
    ) -> Result<Option<Received>, HostError> {
        loop {
            while let Some(event) = self.session.next_event(&mut self.stream.unsent)? {
                match event {
                    ServerEvent::Opened(_) => {}
                    ServerEvent::Command(command) => return Ok(Some(Received::Command(command))),
                    ServerEvent::Data(bytes) => sink(bytes)?,
                    ServerEvent::DataEnd | ServerEvent::ImportEnd => {
                        return Ok(Some(Received::End));
                    }
                    ServerEvent::Entry => return Ok(Some(Received::Entry)),
                    ServerEvent::Imported(path) => return Ok(Some(Received::Imported(path))),
                }
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads bytes of the client. If it waits, sends all replies before. Returns whether there are
    /// more.
    fn fill(&mut self) -> Result<bool, HostError> {
        if !self.stream.has_input() {
            self.commit()?;
            self.flush()?;
        }
        let len = self.stream.read(self.session.space())?;
        self.session.fill(len);
        Ok(len > 0)
    }

    /// Appends a reply, or a part of one.
    ///
    /// Errors: those of the connection.
    pub(super) fn reply(
        &mut self,
        write: impl FnOnce(&ServerSession, &mut Vec<u8>),
    ) -> Result<(), HostError> {
        write(&self.session, &mut self.stream.unsent);
        self.stream.flush_if_large()
    }

    pub(super) fn flush(&mut self) -> Result<(), HostError> {
        self.stream.flush()
    }

    /// Registers the paths that have arrived, and replies for them. While a path arrives, this
    /// does nothing.
    pub(super) fn commit(&mut self) -> Result<(), HostError> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(());
        };
        receiver.commit()?;
        for _ in 0..std::mem::take(&mut self.owed) {
            self.session.reply_added(&mut self.stream.unsent);
        }
        Ok(())
    }

    /// Receives a path.
    pub(super) fn add(&mut self, info: PathInfo) -> Result<(), HostError> {
        let path = info.path.to_string();
        if info.nar_size == 0 {
            return Err(HostError::Forbidden {
                action: format!("add {path}"),
                reason: "the client does not know the size of its NAR".into(),
            });
        }
        let is_trusted = self.store.access().is_trusted;
        self.with_receiver(|connection, receiver| {
            receiver.receive(info, is_trusted, &mut |sink| {
                connection.read_nar(sink, &path)
            })?;
            Ok(receiver.is_full())
        })
        .and_then(|is_full| {
            self.owed += 1;
            if is_full { self.commit() } else { Ok(()) }
        })
    }

    /// Receives the paths of an export, and returns them.
    pub(super) fn import(&mut self) -> Result<Vec<StorePath>, HostError> {
        let mut paths = Vec::new();
        self.with_receiver(|connection, receiver| {
            while connection.begins_entry()? {
                let connection = RefCell::new(&mut *connection);
                paths.push(receiver.import(
                    &mut |sink| connection.borrow_mut().read_nar(sink, EXPORTED),
                    &mut || connection.borrow_mut().read_imported(),
                )?);
                if receiver.is_full() {
                    receiver.commit()?;
                }
            }
            receiver.commit()
        })?;
        Ok(paths)
    }

    /// Does something with the receiver, which no reply can commit meanwhile.
    fn with_receiver<T>(
        &mut self,
        receive: impl FnOnce(&mut Self, &mut Receiver<'s>) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let mut receiver = match self.receiver.take() {
            Some(receiver) => receiver,
            None => Receiver::new(self.store)?,
        };
        let received = receive(self, &mut receiver);
        self.receiver = Some(receiver);
        received
    }

    /// Passes a NAR to `sink`.
    fn read_nar(
        &mut self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
        path: &str,
    ) -> Result<(), HostError> {
        match self.next(sink)? {
            Some(Received::End) => Ok(()),
            _ => Err(HostError::Ended(format!("the NAR of {path}"))),
        }
    }

    /// Whether another path of an export follows.
    fn begins_entry(&mut self) -> Result<bool, HostError> {
        match self.next(&mut |_| Ok(()))? {
            Some(Received::Entry) => Ok(true),
            Some(Received::End) => Ok(false),
            _ => Err(HostError::Ended("an export".into())),
        }
    }

    /// Reads the description of a path of an export.
    fn read_imported(&mut self) -> Result<ImportedPath, HostError> {
        match self.next(&mut |_| Ok(()))? {
            Some(Received::Imported(path)) => Ok(path),
            _ => Err(HostError::Ended("an export".into())),
        }
    }

    /// Sends the descriptions of those of some paths that are valid.
    pub(super) fn send_infos(&mut self, paths: &BTreeSet<StorePath>) -> Result<(), HostError> {
        for path in paths {
            if let Some(info) = self.store.reader().path_info(path)? {
                self.reply(|session, output| session.reply_info(&info, output))?;
            }
        }
        self.reply(ServerSession::reply_info_end)
    }

    /// Sends the NAR of a valid path.
    pub(super) fn send_nar(&mut self, path: &StorePath) -> Result<(), HostError> {
        let Connection { store, stream, .. } = self;
        store.reader().dump(path, &mut |chunk| stream.send(chunk))
    }

    /// Sends paths in the format of `nix-store --export`, references first.
    pub(super) fn export(&mut self, paths: &BTreeSet<StorePath>) -> Result<(), HostError> {
        let infos = paths.iter().map(|path| self.store.valid_path_info(path));
        let infos: Vec<PathInfo> = infos.collect::<Result<_, _>>()?;
        let mut infos: BTreeMap<StorePath, PathInfo> =
            infos.into_iter().map(|it| (it.path.clone(), it)).collect();
        let references = infos.iter();
        let references = references
            .map(|(path, info)| (path.clone(), info.references.clone()))
            .collect();
        for path in references_first(&references) {
            let Some(info) = infos.remove(&path) else {
                continue;
            };
            self.reply(ServerSession::reply_entry)?;
            let mut hasher = Sha256::new();
            let Connection { store, stream, .. } = self;
            store.reader().dump(&info.path, &mut |chunk| {
                hasher.update(chunk);
                stream.send(chunk)
            })?;
            let actual = Hash::sha256(hasher.finish());
            if actual != info.nar_hash {
                return Err(HostError::Changed {
                    expected: info.nar_hash.to_nix32(),
                    actual: actual.to_nix32(),
                    path: info.path,
                });
            }
            self.reply(|session, output| session.reply_entry_info(&info, output))?;
        }
        self.reply(ServerSession::reply_export_end)
    }
}

const EXPORTED: &str = "an exported path";
