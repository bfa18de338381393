//! A connection of the worker protocol.

use std::collections::BTreeSet;

use floe_format::content_address::ContentAddressMethod;
use floe_format::{HashAlgorithm, PathInfo, StorePath};
use floe_wire::worker::{
    DaemonError, PathStream, PathStreamEvent, Reply, Request, ServerEvent, ServerSession,
};

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::receive::Receiver;
use crate::stream::Stream;

/// A connection with the paths that have arrived on it.
pub(super) struct Connection<'s> {
    store: &'s HostedStore,
    session: ServerSession,
    stream: Stream,
    receiver: Option<Receiver<'s>>,
    /// The paths whose replies wait for their registration.
    owed: Vec<StorePath>,
    /// Whether the frames of the current request have not ended.
    in_frames: bool,
    /// Contents of frames that are not read yet, from a place on.
    frame: Vec<u8>,
    frame_at: usize,
}

impl<'s> Connection<'s> {
    pub(super) fn new(
        store: &'s HostedStore,
        session: ServerSession,
        stream: Stream,
    ) -> Connection<'s> {
        Connection {
            store,
            session,
            stream,
            receiver: None,
            owed: Vec::new(),
            in_frames: false,
            frame: Vec::new(),
            frame_at: 0,
        }
    }

    /// Returns the next request; `None` after the last one.
    pub(super) fn next_request(&mut self) -> Result<Option<Request>, HostError> {
        loop {
            while let Some(event) = self.session.next_event(&mut self.stream.unsent)? {
                if let ServerEvent::Request(request) = event {
                    self.in_frames = request.has_frames();
                    return Ok(Some(request));
                }
            }
            if !self.fill()? {
                return if self.session.is_idle() {
                    Ok(None)
                } else {
                    Err(HostError::Ended("a message".into()))
                };
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

    pub(super) fn flush(&mut self) -> Result<(), HostError> {
        self.stream.flush()
    }

    /// Appends a reply.
    ///
    /// Errors: those of the connection.
    pub(super) fn reply(&mut self, reply: &Reply) -> Result<(), HostError> {
        // The reply of a NAR was sent before the NAR.
        if *reply != Reply::Nar {
            self.session.reply(reply, &mut self.stream.unsent);
        }
        self.stream.flush_if_large()
    }

    /// Compresses all bytes that follow. The session decompresses those of the client.
    pub(super) fn compress(&mut self) -> Result<(), HostError> {
        self.reply(&Reply::Compressed)?;
        self.stream.compress()
    }

    /// Sends the failure of a request at once, and drops the rest of its frames: the client may
    /// still send them.
    pub(super) fn fail(&mut self, error: &HostError) -> Result<(), HostError> {
        let error = DaemonError {
            message: error.to_string(),
            ..DaemonError::default()
        };
        self.session.fail(error, &mut self.stream.unsent);
        self.flush()?;
        while self.in_frames {
            self.next_frame()?;
        }
        Ok(())
    }

    /// Sends the failure of a request that cannot be understood, after which nothing can be.
    pub(super) fn fail_last(&mut self, error: &HostError) -> Result<(), HostError> {
        self.in_frames = false;
        self.fail(error)
    }

    /// Reads the next contents of frames. Returns `false` after the last ones.
    fn next_frame(&mut self) -> Result<bool, HostError> {
        self.frame.clear();
        self.frame_at = 0;
        while self.in_frames {
            let has_event = match self.session.next_event(&mut self.stream.unsent)? {
                Some(ServerEvent::Data(bytes)) => {
                    self.frame.extend_from_slice(bytes);
                    return Ok(true);
                }
                Some(ServerEvent::DataEnd) => {
                    self.in_frames = false;
                    true
                }
                event => event.is_some(),
            };
            if !has_event && !self.fill()? {
                return Err(HostError::Ended("the contents of a path".into()));
            }
        }
        Ok(false)
    }

    /// Passes the contents of all frames to `sink`.
    fn read_frames(
        &mut self,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        while self.next_frame()? {
            sink(&self.frame)?;
        }
        Ok(())
    }

    /// Sends the NAR of a valid path.
    pub(super) fn send_nar(&mut self, path: &StorePath) -> Result<Reply, HostError> {
        self.session.reply(&Reply::Nar, &mut self.stream.unsent);
        let Connection { store, stream, .. } = self;
        let sent = store.reader().dump(path, &mut |chunk| stream.send(chunk));
        // The client waits for a whole NAR, and takes an error in it for its bytes.
        sent.map_err(|error| HostError::NarBroken(Box::new(error)))?;
        Ok(Reply::Nar)
    }

    /// Registers the paths that have arrived, and replies for them. While a path arrives, this does
    /// nothing.
    pub(super) fn commit(&mut self) -> Result<(), HostError> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(());
        };
        let committed = receiver.commit_each();
        for path in std::mem::take(&mut self.owed) {
            let failure = match &committed {
                Ok(failures) => failures.get(&path).map(ToString::to_string),
                Err(error) => Some(error.to_string()),
            };
            let output = &mut self.stream.unsent;
            match failure {
                None => self.session.reply(&Reply::Added, output),
                Some(message) => {
                    let error = DaemonError {
                        message,
                        ..DaemonError::default()
                    };
                    self.session.fail(error, output);
                }
            }
        }
        Ok(())
    }

    /// Receives one path. Its reply waits for its registration.
    pub(super) fn add(
        &mut self,
        info: PathInfo,
        (repair, dont_check_sigs): (bool, bool),
    ) -> Result<(), HostError> {
        let path = info.path.clone();
        let is_trusted = self.store.access().is_trusted && dont_check_sigs;
        if info.nar_size > LARGE_NAR_LEN {
            // The client may wait for the replies of the paths before.
            self.commit()?;
            self.flush()?;
        }
        let received = self.with_receiver(|connection, receiver| {
            refuse_repair(repair)?;
            receiver.receive(info, is_trusted, &mut |sink| connection.read_frames(sink))?;
            Ok(receiver.is_full())
        });
        match received {
            Ok(is_full) => {
                self.owed.push(path);
                if is_full { self.commit() } else { Ok(()) }
            }
            Err(error) if error.ends_connection() => Err(error),
            Err(error) => {
                self.commit()?;
                self.fail(&error)
            }
        }
    }

    /// Receives the paths of `AddMultipleToStore`, and registers them.
    pub(super) fn add_multiple(
        &mut self,
        repair: bool,
        dont_check_sigs: bool,
    ) -> Result<(), HostError> {
        let is_trusted = self.store.access().is_trusted && dont_check_sigs;
        self.with_receiver(|connection, receiver| {
            refuse_repair(repair)?;
            let mut paths = PathStream::default();
            while let Some(mut info) = connection.next_path(&mut paths)? {
                // Another machine has built it, as for Nix.
                info.ultimate = false;
                if info.nar_size > LARGE_NAR_LEN {
                    receiver.commit()?;
                }
                let name = info.path.to_string();
                receiver.receive(info, is_trusted, &mut |sink| {
                    connection.read_path(&mut paths, &name, sink)
                })?;
                if receiver.is_full() {
                    receiver.commit()?;
                }
            }
            receiver.commit()?;
            connection.read_frames(&mut |_| Ok(()))
        })
    }

    /// Returns the description of the next path of `AddMultipleToStore`.
    fn next_path(&mut self, paths: &mut PathStream) -> Result<Option<PathInfo>, HostError> {
        loop {
            let mut input = &self.frame[self.frame_at..];
            let event = paths.next(&mut input, self.store.store_dir());
            let event = event.map_err(HostError::Contents)?;
            let left = input.len();
            let found = match event {
                Some(PathStreamEvent::Path(info)) => Some(Some(*info)),
                Some(PathStreamEvent::End) => Some(None),
                _ => None,
            };
            self.frame_at = self.frame.len() - left;
            if let Some(found) = found {
                return Ok(found);
            }
            if left == 0 && !self.next_frame()? {
                return Err(HostError::Ended("a list of paths".into()));
            }
        }
    }

    /// Passes the NAR of a path of `AddMultipleToStore` to `sink`.
    fn read_path(
        &mut self,
        paths: &mut PathStream,
        name: &str,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        loop {
            let mut input = &self.frame[self.frame_at..];
            let event = paths.next(&mut input, self.store.store_dir());
            let event = event.map_err(HostError::Contents)?;
            let left = input.len();
            let is_end = match event {
                Some(PathStreamEvent::Data(bytes)) => {
                    sink(bytes)?;
                    false
                }
                Some(PathStreamEvent::PathEnd) => true,
                _ => false,
            };
            self.frame_at = self.frame.len() - left;
            if is_end {
                return Ok(());
            }
            if left == 0 && !paths.is_at_end_of_nar() && !self.next_frame()? {
                return Err(HostError::Ended(format!("the NAR of {name}")));
            }
        }
    }

    /// Receives contents from which the path follows, and registers it.
    pub(super) fn add_by_contents(
        &mut self,
        name: &str,
        kind: (ContentAddressMethod, HashAlgorithm),
        references: BTreeSet<StorePath>,
    ) -> Result<PathInfo, HostError> {
        self.with_receiver(|connection, receiver| {
            let read = &mut |sink: &mut dyn FnMut(&[u8]) -> Result<(), HostError>| {
                connection.read_frames(sink)
            };
            let info = receiver.add(name, kind, references, read)?;
            receiver.commit()?;
            Ok(info)
        })
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
}

/// While a NAR of more bytes than this arrives, no other path waits for its registration.
const LARGE_NAR_LEN: u64 = 16 * 1024 * 1024;

/// Refuses to replace a valid path.
///
/// Errors: [`HostError::Refused`].
pub(super) fn refuse_repair(repair: bool) -> Result<(), HostError> {
    if repair {
        return Err(HostError::Refused(
            "cannot replace a valid path through the daemon: use floe verify --repair there".into(),
        ));
    }
    Ok(())
}
