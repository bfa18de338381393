//! Receives paths: hashes and unpacks their NARs, and registers them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::content_address::ContentAddressMethod;
use floe_format::{Compression, ContentAddress, Hash, HashAlgorithm, NarInfo, PathInfo, StorePath};
use floe_hash::hash_pool::{HashPool, Worker};
use floe_hash::{Hasher, Sha256};
use floe_store::tree::{TemporaryTree, TreeWriter};
use floe_store::{StagedPath, StoreWriter};
use floe_transfer::{NarVerifier, PlannedPath};
use floe_wire::serve::ImportedPath;

use crate::access::CLIENT;
use crate::arriving_paths::ArrivingPaths;
use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::spool::{spool, write_file_nar};
use crate::stream::ReadNar;

/// The paths that have arrived on a connection, and are not registered yet.
pub(crate) struct Receiver<'s> {
    store: &'s HostedStore,
    writer: &'s StoreWriter,
    worker: Worker,
    arriving: &'s ArrivingPaths,
    /// The number of this connection.
    connection: u64,
    /// The paths that the client has sent since the last registration, with their fingerprints.
    unregistered: BTreeMap<StorePath, String>,
    /// How long a registration waits for other processes that hold the locks of paths.
    busy_wait_max: Duration,
}

impl<'s> Receiver<'s> {
    /// Makes a receiver without paths.
    ///
    /// Errors: [`HostError::Forbidden`].
    pub(crate) fn new(store: &'s HostedStore) -> Result<Receiver<'s>, HostError> {
        // Other clients have threads too, so no core is idle for sure.
        let pool = HashPool::sequential(1, None).without_idle_cores();
        let ticket = pool.tickets().next();
        let arriving = store.arriving_paths();
        Ok(Receiver {
            store,
            writer: store.writer("add paths")?,
            worker: ticket
                .ok_or(floe_transfer::Error::Internal("no worker"))?
                .start(),
            arriving,
            connection: arriving.new_connection(),
            unregistered: BTreeMap::new(),
            busy_wait_max: Duration::MAX,
        })
    }

    /// Limits the time that a registration waits for other processes, which hold the lock of a path
    /// while they build it. Then it fails with [`HostError::Busy`].
    pub(crate) fn limit_busy_wait(&mut self, max: Duration) {
        self.busy_wait_max = max;
    }

    /// Whether enough paths have arrived for one registration.
    pub(crate) fn is_full(&self) -> bool {
        self.unregistered.len() >= BATCH_LEN
    }

    /// Receives a path. `is_trusted` tells whether the path needs no signature. The
    /// receiver reads the NAR of a valid path, and drops it.
    ///
    /// Errors: those of [`crate::Access`], of `read` and of the store; those of a NAR that does not
    /// match.
    pub(crate) fn receive(
        &mut self,
        info: PathInfo,
        is_trusted: bool,
        read: &mut ReadNar<'_>,
    ) -> Result<(), HostError> {
        if !self.receive_unless_known(info, is_trusted, read)? {
            read(&mut |_| Ok(()))?;
        }
        Ok(())
    }

    /// As [`Receiver::receive`], for a NAR that is no part of a stream: that of a valid path is not
    /// read.
    pub(crate) fn receive_skipping(
        &mut self,
        info: PathInfo,
        is_trusted: bool,
        read: &mut ReadNar<'_>,
    ) -> Result<(), HostError> {
        self.receive_unless_known(info, is_trusted, read)
            .map(|_| ())
    }

    /// Receives a path, unless it is valid or has arrived on another connection. Returns whether
    /// the NAR was read.
    fn receive_unless_known(
        &mut self,
        mut info: PathInfo,
        is_trusted: bool,
        read: &mut ReadNar<'_>,
    ) -> Result<bool, HostError> {
        let dir = self.store.store_dir();
        let access = self.store.access();
        let relies_on_content_address = access.check_path(&info, dir, is_trusted)?;
        if !is_trusted {
            info.ultimate = false;
        }
        info.drop_junk_signatures(dir, &access.trusted_keys);
        if self.is_present(&info)? {
            return Ok(false);
        }
        let path = info.path.clone();
        let fingerprint = info.fingerprint(dir);
        let Some(unpacked_bytes) = self.arriving.begin(&fingerprint, self.connection) else {
            self.unregistered.insert(path, fingerprint);
            return Ok(false);
        };
        let planned = planned(info, relies_on_content_address);
        let unpacked = self.unpack(&planned, &mut |sink| {
            read(&mut |chunk| {
                unpacked_bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                sink(chunk)
            })
        });
        match unpacked {
            Ok(tree) => {
                let info = planned.narinfo.info;
                self.stage(StagedPath { tree, info });
                Ok(true)
            }
            Err(error) => {
                self.arriving.abandon(&fingerprint, self.connection);
                Err(error)
            }
        }
    }

    /// Unpacks and verifies a NAR.
    fn unpack(
        &self,
        planned: &PlannedPath,
        read: &mut ReadNar<'_>,
    ) -> Result<TemporaryTree, HostError> {
        let mut verifier = NarVerifier::new(planned, CLIENT, &self.worker);
        let mut tree = self.writer.tree_writer(&planned.narinfo.info.path);
        read(&mut |chunk| {
            verifier.update(chunk)?;
            Ok(tree.write(chunk)?)
        })?;
        verifier.finish()?;
        Ok(tree.finish()?)
    }

    /// Receives a path of an export, whose description follows its NAR. Returns the path.
    ///
    /// Errors: as [`Receiver::receive`]; [`HostError::Forbidden`] for a client that is not trusted,
    /// because an export has no signatures.
    pub(crate) fn import(
        &mut self,
        read: &mut ReadNar<'_>,
        read_info: &mut dyn FnMut() -> Result<ImportedPath, HostError>,
    ) -> Result<StorePath, HostError> {
        if !self.store.access().accepts_unsigned() {
            return Err(HostError::Forbidden {
                action: "import paths".into(),
                reason: "they have no signatures, and you are not a trusted user; use nix copy"
                    .into(),
            });
        }
        let (mut hasher, mut nar_size) = (Sha256::new(), 0);
        let mut tree = self.unknown_tree_writer()?;
        read(&mut |chunk| {
            hasher.update(chunk);
            nar_size += chunk.len() as u64;
            Ok(tree.write(chunk)?)
        })?;
        let tree = tree.finish()?;
        let imported = read_info()?;
        let info = PathInfo {
            nar_hash: Hash::sha256(hasher.finish()),
            nar_size,
            references: imported.references,
            deriver: imported.deriver,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
            path: imported.path,
        };
        let path = info.path.clone();
        self.stage_if_missing(tree, info)?;
        Ok(path)
    }

    /// Receives contents, from which the path follows: the NAR of a tree, or the bytes of a file.
    ///
    /// Errors: those of `read` and of the store; [`HostError::Forbidden`] for a wrong name or
    /// wrong references.
    pub(crate) fn add(
        &mut self,
        name: &str,
        (method, algorithm): (ContentAddressMethod, HashAlgorithm),
        references: BTreeSet<StorePath>,
        read: &mut ReadNar<'_>,
    ) -> Result<PathInfo, HostError> {
        let mut contents = Hasher::new(algorithm);
        let (mut nar_hasher, mut nar_size) = (Sha256::new(), 0);
        let mut tree = self.unknown_tree_writer()?;
        let mut write_nar = |chunk: &[u8]| {
            nar_hasher.update(chunk);
            nar_size += chunk.len() as u64;
            Ok(tree.write(chunk)?)
        };
        if method == ContentAddressMethod::NixArchive {
            read(&mut |chunk| {
                contents.update(chunk);
                write_nar(chunk)
            })?;
        } else {
            // A large file does not fit into a /tmp that is memory.
            let directory = &self.writer.layout().real_store_dir;
            let mut file = spool(directory, read, &mut |chunk| contents.update(chunk))?;
            write_file_nar(&mut file, &mut write_nar)?;
        }
        let tree = tree.finish()?;
        let hash = Hash::new(algorithm, &contents.finish());
        let hash = hash.map_err(|_| floe_transfer::Error::Internal("a hash of a wrong length"))?;
        let ca = ContentAddress { method, hash };
        let dir = self.store.store_dir();
        let path = ca.store_path(dir, name, &references, false);
        let path = path.map_err(|error| HostError::Forbidden {
            action: format!("add {name:?}"),
            reason: error.to_string(),
        })?;
        let info = PathInfo {
            nar_hash: Hash::sha256(nar_hasher.finish()),
            nar_size,
            references,
            deriver: None,
            signatures: BTreeSet::new(),
            ca: Some(ca),
            registration_time: None,
            ultimate: false,
            path,
        };
        self.stage_if_missing(tree, info.clone())?;
        Ok(info)
    }

    /// Returns a writer for a tree whose path is not known yet, and protects the tree from
    /// collections: without a root, a collection deletes the files of a tree while they arrive.
    fn unknown_tree_writer(&self) -> Result<TreeWriter, HostError> {
        let path = StorePath::parse("00000000000000000000000000000000-import");
        let path =
            path.map_err(|_| floe_transfer::Error::Internal("the name of an import is wrong"))?;
        self.writer.add_temp_roots([&path].into_iter())?;
        Ok(self.writer.tree_writer(&path))
    }

    /// Stages a tree whose path was not known before.
    fn stage_if_missing(&mut self, tree: TemporaryTree, info: PathInfo) -> Result<(), HostError> {
        if !self.is_present(&info)? {
            let tree = tree.for_path(&info.path);
            self.stage(StagedPath { tree, info });
        }
        Ok(())
    }

    /// Protects a path and its references from collections. Returns whether the path is there.
    fn is_present(&self, info: &PathInfo) -> Result<bool, HostError> {
        self.writer
            .add_temp_roots([&info.path].into_iter().chain(&info.references))?;
        let has_arrived = self.unregistered.contains_key(&info.path);
        Ok(has_arrived || self.writer.path_info(&info.path)?.is_some())
    }

    fn stage(&mut self, staged: StagedPath) {
        let fingerprint = staged.info.fingerprint(self.store.store_dir());
        let path = staged.info.path.clone();
        self.arriving.add(staged, &fingerprint, self.connection);
        self.unregistered.insert(path, fingerprint);
    }

    /// Registers all paths that have arrived.
    ///
    /// Errors: those of the store, and [`HostError::MissingReferences`]. The other paths are
    /// registered.
    pub(crate) fn commit(&mut self) -> Result<(), HostError> {
        let failures = self.commit_each()?;
        failures.into_values().next().map_or(Ok(()), Err)
    }

    /// Registers all paths that have arrived. Returns those that cannot be registered, with the
    /// reasons.
    ///
    /// Errors: those of the store that concern all paths.
    pub(crate) fn commit_each(&mut self) -> Result<BTreeMap<StorePath, HostError>, HostError> {
        self.commit_all(false)
    }

    /// As [`Receiver::commit_each`]. If the client is away, the connections of other clients
    /// register the paths of both.
    fn commit_all(&mut self, is_away: bool) -> Result<BTreeMap<StorePath, HostError>, HostError> {
        let mut paths = std::mem::take(&mut self.unregistered);
        let (mut failures, began) = (BTreeMap::new(), Instant::now());
        while !paths.is_empty() {
            let (writer, connection) = (self.writer, (self.connection, is_away));
            let result = self.arriving.register(writer, &paths, connection)?;
            failures.extend(result.failures);
            paths.retain(|path, _| result.busy.contains(path));
            if began.elapsed() >= self.busy_wait_max || self.store.check_cancelled().is_err() {
                break;
            }
            if !paths.is_empty() {
                thread::sleep(BUSY_POLL);
            }
        }
        for (path, fingerprint) in paths {
            self.arriving.abandon(&fingerprint, self.connection);
            let reason = "another process builds or adds it";
            failures.insert(path.clone(), HostError::Busy { path, reason });
        }
        Ok(failures)
    }
}

impl Drop for Receiver<'_> {
    /// Registers what has arrived whole, so that a client that comes back need not send it again.
    fn drop(&mut self) {
        // The client is away, or gets another error.
        let _: Result<_, HostError> = self.commit_all(true);
    }
}

fn planned(info: PathInfo, relies_on_content_address: bool) -> PlannedPath {
    PlannedPath {
        narinfo: NarInfo {
            info,
            url: String::new(),
            compression: Compression::None,
            file_hash: None,
            file_size: None,
        },
        source: 0,
        local_copies: Vec::new(),
        is_recovered: false,
        relies_on_content_address,
        keeps_signatures: false,
    }
}

/// How many paths are registered at once: each registration waits for the disk.
const BATCH_LEN: usize = 64;

/// Long beside a registration, short enough that a user does not notice it.
const BUSY_POLL: Duration = Duration::from_millis(50);
