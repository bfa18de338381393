//! A binary cache as a target.
//!
//! 1. `nix-cache-info` is written before anything else.
//! 2. A NAR gets its final name before any narinfo names it.
//! 3. A narinfo appears, whole, after the narinfos of its references: a client that finds a path
//!    also finds its closure.
//! 4. The listing of a path and the log of its build come before its narinfo too.
//! 5. In a directory, a NAR without a narinfo has a record beside it. After an interrupt, the next
//!    run verifies the NAR and does not compress it again. Elsewhere, a record would cost two more
//!    requests for each path.

mod arriving_nar;
mod build_logs;
mod debug_info;
mod examine;
mod inventory;
mod lease;
mod nar_file;
mod options;
mod publish;
mod received;
mod recheck;
mod signatures;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floe_format::{CacheInfo, NarInfo, Realisation, SecretKey, StoreDir, StorePath};
use floe_store::read_regular_file;
use floe_transfer::{
    CacheInventory, Cancel, CommitOutcome, Error, Events, IncomingNar, MissingPaths, Needs,
    OpenTarget, PlannedPath, RealisationTarget, ResumableTarget, SignatureTarget, SigningTarget,
    Space, Target, TargetContext, TargetFacts, codec,
};
use parking_lot::Mutex;

use crate::binary_cache::{CACHE_INFO, NARINFO_SUFFIX, parse_cache_info};
use crate::error::{CacheError, file_error};
use crate::realisations::put_realisations;
use crate::storage::{
    Durability, RECORD_PREFIX, WriteStorage, delete_and_wait, get_and_wait, len_and_wait,
    put_and_wait,
};
pub use arriving_nar::{ArrivingNar, NarFile};
use build_logs::BuildLogs;
use examine::Presence;
use lease::LeaseHolder;
use nar_file::{StagedNar, reuse_nar_file};
pub use options::CacheWriteOptions;
pub use received::{PublishError, SIGNATURES_LEN_MAX, VerifiedNarInfo, VerifyContext};

/// A binary cache that is open for writing, or for a dry run.
#[derive(Debug)]
pub struct BinaryCacheWriter {
    storage: Arc<dyn WriteStorage>,
    options: CacheWriteOptions,
    store_dir: StoreDir,
    keys: Vec<SecretKey>,
    /// Keeps what this writer counts on. Ends before the storage does.
    lease: LeaseHolder,
    /// Ends the examination of paths, and not a commit: staged paths still become valid.
    cancel: Cancel,
    /// Whether the cache existed when it was opened.
    existed: bool,
    /// NARs that are in the cache or on their way to it, until their narinfos are published.
    staged: Mutex<HashMap<StorePath, StagedNar>>,
    /// Paths that this copy has found whole or has published, with their references, as far as they
    /// are known.
    whole: Mutex<HashMap<StorePath, BTreeSet<StorePath>>>,
    /// Paths that clients get elsewhere.
    elsewhere: Mutex<HashSet<StorePath>>,
    /// Paths that the copy replaces, with the reasons.
    damaged: Mutex<HashMap<StorePath, String>>,
    /// The build logs of the new paths, if the cache receives them too.
    build_logs: Option<BuildLogs>,
    /// The paths that this copy has met and whose narinfos lack a signature by one of the keys.
    unsigned: Mutex<BTreeSet<StorePath>>,
}

impl BinaryCacheWriter {
    /// Opens a cache as the target of a copy.
    ///
    /// Errors: as [`BinaryCacheWriter::open`].
    pub(crate) fn open_target(
        storage: Arc<dyn WriteStorage>,
        options: &CacheWriteOptions,
        context: &TargetContext<'_>,
    ) -> Result<OpenTarget, Error> {
        let open = if context.dry_run {
            BinaryCacheWriter::open_read_only
        } else {
            BinaryCacheWriter::open
        };
        let store_dir = context.store_dir.clone().unwrap_or_default();
        let mut cache = open(storage, options, store_dir, &context.session.cancel)?;
        let events = &context.session.events;
        if !context.dry_run {
            cache.lease = cache.new_lease(events);
        }
        let build_logs = context.build_logs.clone();
        cache.build_logs = build_logs.map(|dir| BuildLogs::new(dir, events.clone()));
        Ok(OpenTarget {
            target: Arc::new(cache),
            local_store: None,
        })
    }

    /// Opens a cache. If there is none, [`Target::prepare`] creates one with a `nix-cache-info` for
    /// `store_dir`.
    ///
    /// Errors: those of the storage; [`CacheError::SecretKey`]; [`CacheError::NotACache`] for a
    /// `nix-cache-info` that does not parse.
    pub fn open(
        storage: Arc<dyn WriteStorage>,
        options: &CacheWriteOptions,
        store_dir: StoreDir,
        cancel: &Cancel,
    ) -> Result<BinaryCacheWriter, Error> {
        let keys = options.secret_keys.iter();
        let keys: Result<_, _> = keys.map(|path| read_secret_key(path)).collect();
        let mut cache = BinaryCacheWriter::open_read_only(storage, options, store_dir, cancel)?;
        cache.keys = keys?;
        cache.lease = cache.new_lease(&Events::default());
        Ok(cache)
    }

    /// Makes the lease of this writer.
    fn new_lease(&self, events: &Events) -> LeaseHolder {
        let lifetime = Duration::from_secs(self.options.lease_lifetime.into());
        let context = (events.clone(), self.cancel.clone());
        LeaseHolder::new(self.storage.clone(), lifetime, context, !self.existed)
    }

    /// Opens a cache for a dry run: it need not exist, and nothing is created. A cache that exists
    /// keeps its store directory.
    ///
    /// Errors: as [`BinaryCacheWriter::open`], but for keys.
    pub fn open_read_only(
        storage: Arc<dyn WriteStorage>,
        options: &CacheWriteOptions,
        store_dir: StoreDir,
        cancel: &Cancel,
    ) -> Result<BinaryCacheWriter, Error> {
        let text = get_and_wait(&*storage, CACHE_INFO, cancel)?;
        let info = text.as_deref().map(parse_cache_info).transpose();
        let info = info.map_err(|reason| CacheError::NotACache {
            url: storage.name(),
            reason,
        })?;
        Ok(BinaryCacheWriter {
            lease: LeaseHolder::none(storage.clone()),
            storage,
            options: options.clone(),
            existed: info.is_some(),
            store_dir: info.map_or(store_dir, |info| info.store_dir),
            keys: Vec::new(),
            cancel: cancel.clone(),
            staged: Mutex::default(),
            whole: Mutex::default(),
            elsewhere: Mutex::default(),
            damaged: Mutex::default(),
            build_logs: None,
            unsigned: Mutex::default(),
        })
    }

    /// Returns the paths that were not found whole before, and the references of the others.
    fn split_off_whole(&self, paths: &[StorePath]) -> (Vec<StorePath>, Vec<StorePath>) {
        let (whole, elsewhere) = (self.whole.lock(), self.elsewhere.lock());
        let (mut unknown, mut references) = (Vec::new(), Vec::new());
        for path in paths {
            match whole.get(path) {
                Some(known) => references.extend(known.iter().cloned()),
                None if elsewhere.contains(path) => {}
                None => unknown.push(path.clone()),
            }
        }
        (unknown, references)
    }

    /// Makes the reply for paths out of what was found, and remembers the whole ones.
    fn record(&self, paths: &[StorePath], found: Vec<Presence>) -> MissingPaths {
        let mut missing = MissingPaths::default();
        for (path, found) in paths.iter().zip(found) {
            let reason = self.damaged.lock().get(path).cloned();
            let found = match (found, reason) {
                (Presence::Whole(_), Some(reason)) => Presence::Damaged(reason),
                (found, _) => found,
            };
            match found {
                Presence::Whole(references) => {
                    missing
                        .unchecked_references
                        .extend(references.iter().cloned());
                    self.whole.lock().insert(path.clone(), references);
                    continue;
                }
                Presence::Damaged(reason) => {
                    // Its new narinfo will be signed.
                    self.unsigned.lock().remove(path);
                    missing.damaged.push((path.clone(), reason));
                }
                Presence::Missing => {}
            }
            missing.paths.push(path.clone());
        }
        missing
    }

    /// Whether NARs without narinfos have records.
    fn has_records(&self) -> bool {
        self.storage.nar_directory().is_some()
    }

    /// Whether an object exists.
    fn exists(&self, name: &str) -> Result<bool, Error> {
        Ok(len_and_wait(&*self.storage, name, &Cancel::default())?.is_some())
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        get_and_wait(&*self.storage, name, &self.cancel)
    }
}

/// Returns the name of the record of a staged path: its narinfo, which no client looks for there.
/// An interrupted run leaves it, and the next one finds the NAR with it.
fn record_name(path: &StorePath) -> String {
    format!("nar/{RECORD_PREFIX}{}", path.hash_part())
}

fn narinfo_name(path: &StorePath) -> String {
    format!("{}{NARINFO_SUFFIX}", path.hash_part())
}

impl Target for BinaryCacheWriter {
    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn facts(&self) -> TargetFacts {
        let needs_core_per_worker = codec::needs_core(self.options.compression);
        TargetFacts {
            batch_len_max: if self.has_records() { 64 } else { 4096 },
            wants_whole_closures: true,
            // A new cache comes into being only once it is known that the paths fit. A cache that
            // compresses slowly needs the order of the whole plan.
            receives_early: self.existed && !needs_core_per_worker,
            needs_core_per_worker,
            requires_trust: false,
            ..TargetFacts::default()
        }
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        let (paths, references) = self.split_off_whole(paths);
        let found = self.examine(&paths, &self.cancel)?;
        let mut missing = self.record(&paths, found);
        missing.unchecked_references.extend(references);
        Ok(missing)
    }

    fn query_missing_of_closures(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        let (paths, _) = self.split_off_whole(paths);
        let found = self.examine_closures(&paths)?;
        Ok(self.record(&paths, found))
    }

    fn assume_present(&self, paths: &[StorePath]) {
        *self.elsewhere.lock() = paths.iter().cloned().collect();
    }

    fn replace(&self, damaged: Vec<(StorePath, String)>) {
        *self.damaged.lock() = damaged.into_iter().collect();
    }

    fn prepare(&self) -> Result<(), Error> {
        self.storage.create()?;
        self.lease.begin()?;
        // Another process may have created the cache meanwhile.
        if self.existed || self.exists(CACHE_INFO)? {
            return Ok(());
        }
        let info = CacheInfo {
            store_dir: self.store_dir.clone(),
            want_mass_query: self.options.want_mass_query,
            priority: self.options.priority,
        };
        let text = info.to_text().into();
        put_and_wait(&*self.storage, CACHE_INFO, text, Durability::Synced)
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        let mut staged = self.write_nar_file(nar)?;
        if self.has_records() {
            staged.wait_until_whole()?;
            let record = staged.narinfo.to_text(&self.store_dir);
            let name = record_name(nar.path());
            put_and_wait(&*self.storage, &name, record.into(), Durability::Unsynced)?;
        }
        self.staged.lock().insert(nar.path().clone(), staged);
        Ok(())
    }

    /// Publishes the narinfos: references first, and otherwise many at once.
    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        let mut outcome = CommitOutcome::default();
        let mut staged = self.take_staged(batch, &mut outcome)?;
        // The names of the NARs must reach the disk before the narinfos do.
        self.storage.sync()?;
        if self.lease.has_expired()? {
            self.check_again(&mut staged, &mut outcome)?;
        }
        self.publish(staged, &mut outcome)?;
        self.storage.sync()?;
        if self.lease.has_expired()? {
            self.check_published(&mut outcome)?;
        }
        Ok(outcome)
    }

    fn estimate_space(&self, planned_paths: &[Arc<PlannedPath>]) -> Result<Option<Space>, Error> {
        let Some(directory) = self.storage.nar_directory() else {
            return Ok(None);
        };
        let options = &self.options;
        let inodes = 2 + u64::from(options.write_listings);
        let needs = |narinfo: &NarInfo| Needs::of_nar_file(narinfo, options.compression, inodes);
        Space::estimate(directory, planned_paths, needs).map(Some)
    }

    fn discard(&self, paths: &[StorePath]) {
        let mut staged = self.staged.lock();
        for path in paths {
            staged.remove(path);
        }
    }

    fn as_signing(&self) -> Option<&dyn SigningTarget> {
        (!self.keys.is_empty()).then_some(self as &dyn SigningTarget)
    }

    fn as_signature_target(&self) -> Option<&dyn SignatureTarget> {
        Some(self)
    }

    fn as_inventory(&self) -> Option<&dyn CacheInventory> {
        Some(self)
    }

    fn as_realisation_target(&self) -> Option<&dyn RealisationTarget> {
        Some(self)
    }

    /// Without records, the next run does not find the staged paths.
    fn as_resumable(&self) -> Option<&dyn ResumableTarget> {
        self.has_records().then_some(self as &dyn ResumableTarget)
    }
}

impl RealisationTarget for BinaryCacheWriter {
    fn register_realisations(&self, realisations: &[Realisation]) -> Result<(), Error> {
        put_realisations(&*self.storage, realisations, &self.keys, &self.cancel)
    }
}

impl ResumableTarget for BinaryCacheWriter {
    fn has_recovered(&self, path: &StorePath) -> bool {
        // Without the record, the path is fetched.
        self.exists(&record_name(path)).unwrap_or(false)
    }

    fn reuse_local_copy(&self, nar: &mut IncomingNar<'_>) -> Result<bool, Error> {
        let name = record_name(nar.path());
        let Some(record) = self.get(&name)? else {
            return Ok(false);
        };
        let narinfo = NarInfo::parse(&record, &self.store_dir);
        let staged = match narinfo {
            Ok(narinfo) => {
                self.lease.need(std::iter::once(narinfo.url.as_str()))?;
                reuse_nar_file((&*self.storage, &self.cancel), &self.options, nar, narinfo)?
            }
            Err(_) => None,
        };
        let Some(staged) = staged else {
            delete_and_wait(&*self.storage, &name)?;
            return Ok(false);
        };
        self.staged.lock().insert(nar.path().clone(), staged);
        Ok(true)
    }

    /// The records of the paths are there since they were received.
    fn keep_for_resume(&self, paths: &[StorePath]) -> usize {
        let mut staged = self.staged.lock();
        paths.iter().filter_map(|path| staged.remove(path)).count()
    }

    fn discard_recovered(&self, _: &dyn Fn(&StorePath) -> bool) {}
}

/// Reads the file of a secret key.
///
/// Errors: [`Error::File`]; [`CacheError::SecretKey`], which never contains the key.
pub fn read_secret_key(path: &Path) -> Result<SecretKey, Error> {
    let bytes = read_regular_file(path, SECRET_KEY_LEN_MAX)
        .map_err(file_error("read the secret key", path))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let key = SecretKey::parse(text.trim()).map_err(|error| CacheError::SecretKey {
        path: path.to_path_buf(),
        reason: error.reason(),
    });
    Ok(key?)
}

/// The largest file of a secret key that floe reads, in bytes: far beyond any key with a sensible
/// name.
const SECRET_KEY_LEN_MAX: u64 = 64 * 1024;
