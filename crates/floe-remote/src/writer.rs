//! A remote store as a target.
//!
//! The other side reads requests in order and registers each path at the end of its NAR. The
//! pipeline passes paths after their references, so a path can follow without a wait for the
//! replies of the paths before it. The commit waits for the replies.
//!
//! One NAR at a time goes over a connection. A worker whose turn has not come decodes and hashes
//! into memory, as long as there is room.

mod add_sink;
mod connections;
mod registrations;
mod signatures;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use floe_format::{HashPart, StoreDir, StorePath};
use floe_transfer::{
    CommitOutcome, Error, IncomingNar, MissingPaths, RootRegistry, SignatureTarget, Target,
    TargetFacts,
};
use floe_wire::Protocol;
use floe_wire::worker::{Reply, Request};
use parking_lot::Mutex;

use self::add_sink::{AddSink, Shared};
use self::connections::Connections;
use crate::connection::{Connection, ExpectedReply, Open};
use crate::error::RemoteError;

/// A remote store that is open for writing.
#[derive(Debug)]
pub(crate) struct RemoteTarget {
    shared: Shared,
    options: RemoteTargetOptions,
    /// The paths that were sent, until they are committed.
    sent: Mutex<HashMap<StorePath, ExpectedReply>>,
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
    /// Makes a target with its first connection. `open` opens further ones, if they help.
    pub(crate) fn new(
        connection: Connection,
        open: Option<Open>,
        options: RemoteTargetOptions,
    ) -> RemoteTarget {
        RemoteTarget {
            shared: Shared::new(Connections::new(connection, open)),
            options,
            sent: Mutex::default(),
        }
    }

    /// Returns the connection for queries.
    fn connection(&self) -> &Connection {
        self.shared.connections.first()
    }

    fn unexpected(&self) -> Error {
        RemoteError::unexpected_reply(self.connection().name()).into()
    }

    /// Waits until no collection runs.
    fn wait_for_collection(&self) -> Result<(), RemoteError> {
        let mut sender = self.connection().lock();
        let reply = sender.send_and_expect(&Request::WaitForGc, |_| {});
        sender.flush();
        drop(sender);
        reply.wait_at_most(GC_TIMEOUT).map(drop)
    }

    /// Checks that the daemon obeys a client that demands no signatures, if it says whom it trusts.
    fn check_trust(&self) -> Result<(), RemoteError> {
        match self.connection().wait_until_open()?.trusts_client {
            Some(false) => Err(RemoteError::NotTrusted {
                uri: self.connection().name().to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl Target for RemoteTarget {
    fn store_dir(&self) -> &StoreDir {
        self.connection().dir()
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            batch_len_max: BATCH_LEN_MAX,
            wants_whole_closures: true,
            needs_references_first: true,
            requires_trust: self.options.requires_trust,
            ..TargetFacts::default()
        }
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        // The serve protocol adds temporary roots with the query.
        let lock = !self.options.dry_run;
        let has_request = self.connection().protocol() == Protocol::Worker;
        let rooted = if lock && has_request { paths } else { &[] };
        let roots = rooted.iter().cloned().map(Request::AddTempRoot);
        let query = Request::QueryValidPaths {
            paths: paths.iter().cloned().collect(),
            substitute: self.options.substitutes && lock,
            lock,
        };
        let replies = self.connection().request_all(roots.chain([query]));
        let mut replies = replies.map_err(RemoteError::of_target)?;
        let Some(Reply::Paths(valid)) = replies.pop() else {
            return Err(self.unexpected());
        };
        let missing = paths.iter().filter(|path| !valid.contains(path));
        Ok(missing.cloned().collect::<Vec<_>>().into())
    }

    fn query_path_from_hash_part(&self, hash_part: HashPart) -> Result<Option<StorePath>, Error> {
        let request = Request::QueryPathFromHashPart(hash_part);
        let replies = self.connection().request_all([request]);
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
        let info = &nar.narinfo().info;
        let missing = self.shared.registrations.refused_references(info);
        if !missing.is_empty() {
            let path = info.path.clone();
            return Err(Error::MissingReferences { path, missing });
        }
        let mut sink = AddSink::new(&self.shared, info, dont_check_sigs);
        match nar.write_to(&mut sink) {
            Ok(()) => {
                let reply = sink.finish()?;
                self.sent.lock().insert(info.path.clone(), reply);
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
        for (number, path) in batch.iter().enumerate() {
            let Some(reply) = self.sent.lock().remove(path) else {
                return Err(Error::Internal("a path is committed that was not received"));
            };
            match reply.wait() {
                Ok(_) => outcome.valid.push(path.clone()),
                Err(error @ RemoteError::Add { .. }) => {
                    outcome.refused.push((path.clone(), error.into()));
                }
                // The connection has ended. The replies that arrived before count.
                Err(error) => {
                    outcome.end = Some(error.of_target());
                    self.discard(&batch[number..]);
                    break;
                }
            }
        }
        Ok(outcome)
    }

    /// The daemon registers a path that it has received, so nothing can be withdrawn.
    fn discard(&self, paths: &[StorePath]) {
        let mut sent = self.sent.lock();
        for path in paths {
            sent.remove(path);
        }
    }

    fn as_signature_target(&self) -> Option<&dyn SignatureTarget> {
        let has_request = self.connection().protocol() == Protocol::Worker;
        has_request.then_some(self as &dyn SignatureTarget)
    }

    fn as_root_registry(&self) -> Option<&dyn RootRegistry> {
        Some(self)
    }
}

impl RootRegistry for RemoteTarget {
    fn add_indirect_root(&self, link: &Path, path: &StorePath) -> Result<(), Error> {
        let Some(link) = link.to_str() else {
            return Err(RemoteError::Query {
                uri: self.connection().name().to_owned(),
                reason: format!(
                    "the link {} is not UTF-8; choose another name",
                    link.display()
                ),
            }
            .into());
        };
        // A collector that runs now may have read the permanent roots before, and may read the
        // temporary roots only when this connection has ended. The second request tells it the
        // path. A collector before Nix 2.36 may delete the path all the same, so floe waits for its
        // end. The next collection finds the root.
        //
        // The daemon remembers for each connection which paths are valid, except in the query for
        // a hash part. A valid path has its whole closure.
        let roots = [
            Request::AddIndirectRoot(link.to_owned()),
            Request::AddTempRoot(path.clone()),
        ];
        self.connection().request_all(roots)?;
        self.wait_for_collection()?;
        match self.query_path_from_hash_part(path.hash_part())? {
            Some(found) if found == *path => Ok(()),
            _ => Err(Error::Vanished { path: path.clone() }),
        }
    }
}

/// The paths of a commit. The daemon has registered them before, so the number costs nothing.
const BATCH_LEN_MAX: usize = 4096;

/// The longest wait for a collection. A garbage collection in a large store takes minutes.
const GC_TIMEOUT: Duration = Duration::from_secs(600);
