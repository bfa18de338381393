//! A remote store as a target.
//!
//! The other side reads requests in order and registers each path at the end of its NAR. The
//! pipeline passes paths after their references, so a path can follow without a wait for the
//! replies of the paths before it. The commit waits for the replies.
//!
//! Only one NAR at a time goes over the connection. A worker whose turn has not come decodes and
//! hashes into memory, as long as there is room.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use floe_format::{HashPart, PathInfo, StoreDir, StorePath};
use floe_transfer::{CommitOutcome, Error, IncomingNar, MissingPaths, NarSink, Target};
use floe_wire::Protocol;
use floe_wire::worker::{Reply, Request};
use parking_lot::Mutex;

use crate::connection::{Connection, ExpectedReply, Sender};
use crate::error::RemoteError;

/// A remote store that is open for writing.
#[derive(Debug)]
pub(crate) struct RemoteTarget {
    connection: Connection,
    options: RemoteTargetOptions,
    /// The paths that were sent, until they are committed.
    sent: Mutex<HashMap<StorePath, ExpectedReply>>,
    /// The paths that the daemon has refused.
    refused: Arc<Mutex<HashSet<StorePath>>>,
    /// The error after which no path can become valid any more.
    end: Mutex<Option<RemoteError>>,
    /// The bytes of NARs in memory, of all workers.
    buffered: AtomicUsize,
}

/// How a remote store is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteTargetOptions {
    /// Whether nothing must be written.
    pub(crate) dry_run: bool,
    /// Whether the daemon first substitutes missing paths.
    pub(crate) substitutes: bool,
    /// Whether floe itself checks signatures: the daemon has the same settings. Otherwise only the
    /// other side does.
    pub(crate) requires_trust: bool,
}

impl RemoteTarget {
    pub(crate) fn new(connection: Connection, options: RemoteTargetOptions) -> RemoteTarget {
        RemoteTarget {
            connection,
            options,
            sent: Mutex::default(),
            refused: Arc::default(),
            end: Mutex::default(),
            buffered: AtomicUsize::new(0),
        }
    }

    fn unexpected(&self) -> Error {
        RemoteError::unexpected_reply(self.connection.name()).into()
    }

    /// Checks that the daemon obeys a client that demands no signatures, if it says whom it trusts.
    fn check_trust(&self) -> Result<(), RemoteError> {
        match self.connection.wait_until_open()?.trusts_client {
            Some(false) => Err(RemoteError::NotTrusted {
                uri: self.connection.name().to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the references of a path that the daemon has refused.
    fn refused_references(&self, info: &PathInfo) -> BTreeSet<StorePath> {
        let mut refused = self.refused.lock();
        // This may be another attempt.
        refused.remove(&info.path);
        let references = info.references.iter();
        references
            .filter(|it| refused.contains(*it))
            .cloned()
            .collect()
    }

    /// Takes memory for some bytes, if there is room.
    fn reserve(&self, len: usize) -> bool {
        let add = |buffered: usize| Some(buffered + len).filter(|sum| *sum <= BUFFERED_MAX);
        let order = Ordering::Relaxed;
        self.buffered.fetch_update(order, order, add).is_ok()
    }
}

impl Target for RemoteTarget {
    fn store_dir(&self) -> &StoreDir {
        self.connection.dir()
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        // The serve protocol adds temporary roots with the query.
        let lock = !self.options.dry_run;
        let has_request = self.connection.protocol() == Protocol::Worker;
        let roots = paths.iter().filter(|_| lock && has_request);
        let roots = roots.map(|path| Request::AddTempRoot(path.clone()));
        let query = Request::QueryValidPaths {
            paths: paths.iter().cloned().collect(),
            substitute: self.options.substitutes && lock,
            lock,
        };
        let replies = self.connection.request_all(roots.chain([query]));
        let mut replies = replies.map_err(RemoteError::of_target)?;
        let Some(Reply::Paths(valid)) = replies.pop() else {
            return Err(self.unexpected());
        };
        let missing = paths.iter().filter(|path| !valid.contains(path));
        Ok(missing.cloned().collect::<Vec<_>>().into())
    }

    fn wants_whole_closures(&self) -> bool {
        true
    }

    fn needs_references_first(&self) -> bool {
        true
    }

    fn batch_len_max(&self) -> usize {
        BATCH_LEN_MAX
    }

    fn requires_trust(&self) -> bool {
        self.options.requires_trust
    }

    fn query_path_from_hash_part(&self, hash_part: HashPart) -> Result<Option<StorePath>, Error> {
        let request = Request::QueryPathFromHashPart(hash_part);
        let replies = self.connection.request_all([request]);
        match replies.map_err(RemoteError::of_target)?.pop() {
            Some(Reply::Path(path)) => Ok(path),
            _ => Err(self.unexpected()),
        }
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        let dont_check_sigs = !nar.options().check_signatures;
        if dont_check_sigs {
            self.check_trust().map_err(RemoteError::of_target)?;
        }
        let missing = self.refused_references(&nar.narinfo().info);
        if !missing.is_empty() {
            let path = nar.path().clone();
            return Err(Error::MissingReferences { path, missing });
        }
        let info = PathInfo {
            registration_time: None,
            ultimate: false,
            ..nar.narinfo().info.clone()
        };
        let request = Request::AddToStoreNar {
            info: Box::new(info),
            repair: false,
            dont_check_sigs,
        };
        let path = nar.path().clone();
        let mut sink = AddSink {
            target: self,
            path: path.clone(),
            is_whole: Arc::default(),
            request,
            buffer: Vec::new(),
            sending: None,
        };
        match nar.write_to(&mut sink) {
            Ok(()) => {
                let reply = sink.finish()?;
                self.sent.lock().insert(path, reply);
                Ok(())
            }
            Err(error) => {
                sink.abandon();
                Err(error)
            }
        }
    }

    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        let mut outcome = CommitOutcome::default();
        if let Some(error) = self.end.lock().clone() {
            return Err(error.of_target());
        }
        for path in batch {
            if self.end.lock().is_some() {
                // The replies that have arrived count. The next commit reports the end.
                outcome.busy.push(path.clone());
                continue;
            }
            let Some(reply) = self.sent.lock().remove(path) else {
                return Err(Error::Internal("a path is committed that was not received"));
            };
            match reply.wait() {
                Ok(_) => outcome.valid.push(path.clone()),
                Err(error @ RemoteError::Add { .. }) => {
                    outcome.refused.push((path.clone(), error.into()));
                }
                Err(error) => {
                    *self.end.lock() = Some(error);
                    outcome.busy.push(path.clone());
                }
            }
        }
        if let Some(error) = self.end.lock().clone().filter(|_| outcome.valid.is_empty()) {
            return Err(error.of_target());
        }
        Ok(outcome)
    }

    fn add_indirect_root(&self, link: &Path, path: &StorePath) -> Result<(), Error> {
        let Some(link) = link.to_str() else {
            return Err(RemoteError::Query {
                uri: self.connection.name().to_owned(),
                reason: format!(
                    "the link {} is not UTF-8; choose another name",
                    link.display()
                ),
            }
            .into());
        };
        // A collector that runs now may have read the permanent roots before, and may read the
        // temporary roots only when this connection has ended. The second request tells it the
        // path. A collector before Nix 2.36 may have deleted the path all the same.
        let requests = [
            Request::AddIndirectRoot(link.to_owned()),
            Request::AddTempRoot(path.clone()),
            Request::QueryPathInfo(path.clone()),
        ];
        match self.connection.request_all(requests)?.pop() {
            Some(Reply::PathInfo(Some(_))) => Ok(()),
            _ => Err(Error::Vanished { path: path.clone() }),
        }
    }

    /// The daemon registers a path that it has received, so nothing can be withdrawn.
    fn discard(&self, paths: &[StorePath]) {
        let mut sent = self.sent.lock();
        for path in paths {
            sent.remove(path);
        }
    }
}

/// A NAR on its way to the daemon.
struct AddSink<'a> {
    target: &'a RemoteTarget,
    path: StorePath,
    /// Whether the NAR was complete. The daemon refuses another one, which tells nothing about the
    /// path.
    is_whole: Arc<AtomicBool>,
    request: Request,
    /// The bytes before the turn of this NAR.
    buffer: Vec<u8>,
    /// The connection, once it is the turn of this NAR.
    sending: Option<(Sender<'a>, ExpectedReply)>,
}

impl<'a> AddSink<'a> {
    /// Begins the turn: sends the request and the bytes that are there.
    fn begin(&mut self, mut sender: Sender<'a>) -> Result<(), RemoteError> {
        let (refused, path) = (self.target.refused.clone(), self.path.clone());
        let is_whole = self.is_whole.clone();
        let reply = sender.send_and_expect(&self.request, move |reply| {
            let is_refused = matches!(reply, Err(RemoteError::Add { .. }));
            if is_refused && is_whole.load(Ordering::Relaxed) {
                refused.lock().insert(path);
            }
        });
        let sent = sender.send_nar(&self.buffer);
        self.sending = Some((sender, reply));
        self.forget_buffer();
        sent
    }

    fn forget_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let reserved = buffer.len();
        self.target.buffered.fetch_sub(reserved, Ordering::Relaxed);
    }

    /// Ends the NAR, and returns the future reply.
    fn finish(mut self) -> Result<ExpectedReply, Error> {
        if self.sending.is_none() {
            let begun = self.begin(self.target.connection.lock());
            begun.map_err(RemoteError::of_target)?;
        }
        let (mut sender, reply) = self.sending.take().ok_or(NO_TURN)?;
        self.is_whole.store(true, Ordering::Relaxed);
        sender.end_nar();
        Ok(reply)
    }

    /// Ends a NAR that is not whole, so that the daemon refuses the path.
    fn abandon(mut self) {
        if let Some((mut sender, _)) = self.sending.take() {
            sender.abandon_nar();
        }
    }
}

impl NarSink for AddSink<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        if let Some((sender, _)) = &mut self.sending {
            return sender.send_nar(nar).map_err(RemoteError::of_target);
        }
        if self.buffer.len() + nar.len() <= SMALL_NAR_LEN && self.target.reserve(nar.len()) {
            // A small NAR is verified before its first byte is sent.
            self.buffer.extend_from_slice(nar);
            return Ok(());
        }
        let sender = self.target.connection.try_lock();
        let sender = match sender {
            None if self.target.reserve(nar.len()) => {
                self.buffer.extend_from_slice(nar);
                return Ok(());
            }
            None => self.target.connection.lock(),
            Some(sender) => sender,
        };
        self.begin(sender).map_err(RemoteError::of_target)?;
        let (sender, _) = self.sending.as_mut().ok_or(NO_TURN)?;
        sender.send_nar(nar).map_err(RemoteError::of_target)
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

/// The paths of a commit. The daemon has registered them before, so the number costs nothing.
const BATCH_LEN_MAX: usize = 4096;
