//! One NAR on its way to the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use floe_format::PathInfo;
use floe_transfer::{Error, NarSink};
use floe_wire::worker::Request;

use super::connections::{Connections, SMALL};
use super::registrations::Registrations;
use crate::connection::{ExpectedReply, Sender};
use crate::error::RemoteError;

/// The parts of a target that all NARs on their way share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) connections: Connections,
    pub(super) registrations: Arc<Registrations>,
    /// The bytes of NARs in memory, of all workers.
    buffered: AtomicUsize,
}

impl Shared {
    pub(super) fn new(connections: Connections) -> Shared {
        Shared {
            connections,
            registrations: Arc::default(),
            buffered: AtomicUsize::new(0),
        }
    }
}

/// A NAR on its way to the daemon.
///
/// The bytes before its turn wait in memory. If there are several connections, the last bytes also
/// wait, until the daemon has replied about the references that went over other connections: it
/// registers the path as soon as the NAR is complete.
pub(super) struct AddSink<'a> {
    shared: &'a Shared,
    info: &'a PathInfo,
    dont_check_sigs: bool,
    /// The bytes that are not sent.
    buffer: Vec<u8>,
    /// How many of them count against the memory of all workers.
    reserved: usize,
    /// The connection, once it is the turn of this NAR.
    sending: Option<(usize, Sender<'a>, ExpectedReply)>,
    /// Whether the NAR was complete. The daemon refuses another one, which tells nothing about the
    /// path.
    is_whole: Arc<AtomicBool>,
}

impl<'a> AddSink<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        info: &'a PathInfo,
        dont_check_sigs: bool,
    ) -> AddSink<'a> {
        AddSink {
            shared,
            info,
            dont_check_sigs,
            buffer: Vec::new(),
            reserved: 0,
            sending: None,
            is_whole: Arc::default(),
        }
    }

    /// Ends the NAR, and returns the future reply.
    pub(super) fn finish(mut self) -> Result<ExpectedReply, Error> {
        if self.sending.is_none() {
            // A small NAR need not hold its connection while it waits.
            self.wait_for_references(Some(SMALL))?;
            self.begin((SMALL, self.shared.connections.lock(SMALL)));
        }
        let (number, mut sender, reply) = self.sending.take().ok_or(NO_TURN)?;
        if let Err(error) = self.wait_for_references(Some(number)) {
            sender.abandon_nar();
            return Err(error);
        }
        let sent = sender.send_nar(&self.buffer);
        self.forget_buffer();
        sent.map_err(RemoteError::of_target)?;
        self.is_whole.store(true, Ordering::Relaxed);
        sender.end_nar();
        Ok(reply)
    }

    /// Ends a NAR that is not whole, so that the daemon refuses the path.
    pub(super) fn abandon(mut self) {
        if let Some((_, mut sender, _)) = self.sending.take() {
            sender.abandon_nar();
        }
    }

    /// Waits for the references that are on their way over other connections.
    ///
    /// Errors: one of them was refused.
    fn wait_for_references(&self, connection: Option<usize>) -> Result<(), Error> {
        if !self.shared.connections.are_several() {
            return Ok(());
        }
        let registrations = &self.shared.registrations;
        let missing = registrations.wait_for_references(self.info, connection);
        if missing.is_empty() {
            return Ok(());
        }
        let path = self.info.path.clone();
        Err(Error::MissingReferences { path, missing })
    }

    /// Begins the turn: sends the request.
    fn begin(&mut self, (number, mut sender): (usize, Sender<'a>)) {
        let info = PathInfo {
            registration_time: None,
            ultimate: false,
            ..self.info.clone()
        };
        let request = Request::AddToStoreNar {
            info: Box::new(info),
            repair: false,
            dont_check_sigs: self.dont_check_sigs,
        };
        let (registrations, path) = (self.shared.registrations.clone(), self.info.path.clone());
        let is_whole = self.is_whole.clone();
        registrations.send(&path, number);
        let reply = sender.send_and_expect(&request, move |reply| {
            if is_whole.load(Ordering::Relaxed) {
                registrations.end(&path, reply.is_ok());
            } else {
                registrations.forget(&path);
            }
        });
        self.sending = Some((number, sender, reply));
    }

    /// Takes memory for some bytes, if there is room.
    fn reserve(&mut self, len: usize) -> bool {
        let add = |buffered: usize| Some(buffered + len).filter(|sum| *sum <= BUFFERED_MAX);
        let order = Ordering::Relaxed;
        let has_room = self.shared.buffered.fetch_update(order, order, add).is_ok();
        self.reserved += if has_room { len } else { 0 };
        has_room
    }

    fn forget_buffer(&mut self) {
        self.buffer.clear();
        let reserved = std::mem::take(&mut self.reserved);
        self.shared.buffered.fetch_sub(reserved, Ordering::Relaxed);
    }

    /// Begins the turn of a large NAR if a connection is free, or if there is no memory left.
    fn begin_large(&mut self, len: usize) {
        let connections = &self.shared.connections;
        match connections.try_lock() {
            Some(free) => self.begin(free),
            None if self.reserve(len) => {}
            None => self.begin((SMALL, connections.lock(SMALL))),
        }
    }
}

impl NarSink for AddSink<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        // A small NAR is verified before its first byte is sent.
        let is_small = self.buffer.len() + nar.len() <= SMALL_NAR_LEN;
        if self.sending.is_none() && !(is_small && self.reserve(nar.len())) {
            self.begin_large(nar.len());
        }
        let Some((_, sender, _)) = &mut self.sending else {
            self.buffer.extend_from_slice(nar);
            return Ok(());
        };
        if self.shared.connections.are_several() {
            let sent = sender.send_nar(&self.buffer);
            self.forget_buffer();
            self.buffer.extend_from_slice(nar);
            return sent.map_err(RemoteError::of_target);
        }
        let sent = sender.send_nar(&self.buffer);
        let sent = sent.and_then(|()| sender.send_nar(nar));
        self.forget_buffer();
        sent.map_err(RemoteError::of_target)
    }
}

impl Drop for AddSink<'_> {
    fn drop(&mut self) {
        self.forget_buffer();
    }
}

const NO_TURN: Error = Error::Internal("a NAR is sent before its turn");

/// The most bytes of NARs in memory, of all workers.
const BUFFERED_MAX: usize = 64 * 1024 * 1024;

/// A NAR of at most this length is sent only when it is complete.
const SMALL_NAR_LEN: usize = 1024 * 1024;
