//! The live store as the place of received paths.
//!
//! A path is added when its narinfo arrives: the server decodes the NAR that was uploaded before,
//! compares it, unpacks it and registers the path. Temporary roots keep the path from collections
//! for some time, so that a client can pin it.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use floe_daemon::{Access, HostError, HostedStore};
use floe_format::{NarInfo, Realisation, SecretKey, StorePath, TrustedKeys};
use floe_server::receive::{ReceiveError, ReceiveErrorKind};
use floe_store::tree::dump_path;
use floe_store::{
    IndirectGcRoot, StoreError, StoreLayout, TempRoots, WriteOptions, list_directory,
    open_regular_file,
};
use floe_transfer::codec::{self, DecodeError};
use floe_transfer::{Cancel, Error, ErrorKind};
use parking_lot::Mutex;

use super::Shared;
use super::errors::{conflict, failed, invalid};
use super::limits::Slots;
use crate::options::lock_wait;

/// A live store that receives paths.
pub(super) struct ReceivingStore {
    options: StoreOptions,
    roots: Mutex<Roots>,
    /// The NARs that were added last, by the names of their files, which are gone. Another path may
    /// have the same contents, and its client may have seen the file.
    added: Mutex<VecDeque<(String, StorePath)>>,
    /// The workers that may wait for a collection.
    waiting: Slots,
    /// The workers that may wait for another process while they add a path.
    adding: Slots,
}

/// How a live store receives paths.
pub(in crate::commands::serve) struct StoreOptions {
    pub(in crate::commands::serve) layout: StoreLayout,
    /// Which paths are accepted, without the keys of the server.
    pub(in crate::commands::serve) access: Access,
    /// The keys of the server, which are trusted too.
    pub(in crate::commands::serve) own_keys: TrustedKeys,
    pub(in crate::commands::serve) write: WriteOptions,
    /// How long collections keep a received path, at least.
    pub(in crate::commands::serve) keep: Duration,
}

/// The open stores, whose temporary roots keep received paths.
struct Roots {
    current: Arc<HostedStore>,
    trusted_keys: TrustedKeys,
    since: Instant,
    /// The store before. Its last paths are younger than `keep`.
    earlier: Option<Arc<HostedStore>>,
}

impl StoreOptions {
    /// Opens the store with temporary roots of its own.
    fn open(
        &self,
        trusted_keys: TrustedKeys,
        cancel: &Cancel,
    ) -> Result<Arc<HostedStore>, HostError> {
        let options = WriteOptions {
            temp_roots: TempRoots::default(),
            lock_wait: lock_wait(cancel.flag()),
            ..self.write.clone()
        };
        let access = Access {
            trusted_keys,
            ..self.access.clone()
        };
        let mut store = HostedStore::open(self.layout.clone(), access, &options)?;
        store.set_cancel(cancel.clone());
        Ok(Arc::new(store))
    }

    fn trusted_keys(&self, own: TrustedKeys) -> TrustedKeys {
        let mut keys = self.access.trusted_keys.clone();
        keys.extend(own);
        keys
    }
}

impl ReceivingStore {
    /// Opens the store, and makes it if there is none.
    ///
    /// Errors: those of the store.
    pub(super) fn open(
        options: StoreOptions,
        cancel: &Cancel,
    ) -> Result<ReceivingStore, HostError> {
        let trusted_keys = options.trusted_keys(options.own_keys.clone());
        let current = options.open(trusted_keys.clone(), cancel)?;
        Ok(ReceivingStore {
            roots: Mutex::new(Roots {
                current,
                trusted_keys,
                since: Instant::now(),
                earlier: None,
            }),
            added: Mutex::default(),
            waiting: Slots::new(WAITING_MAX),
            adding: Slots::new(WAITING_MAX),
            options,
        })
    }

    fn current(&self) -> Arc<HostedStore> {
        self.roots.lock().current.clone()
    }

    /// Lets collections delete the paths that were received long ago, and deletes trees of killed
    /// processes.
    ///
    /// Errors: those of the store; the roots stay.
    pub(super) fn close_old_roots(&self, cancel: &Cancel) -> Result<(), HostError> {
        self.current().discard_needless_trees();
        if self.roots.lock().since.elapsed() < self.options.keep {
            return Ok(());
        }
        let trusted_keys = self.roots.lock().trusted_keys.clone();
        let current = self.options.open(trusted_keys, cancel)?;
        let mut roots = self.roots.lock();
        // Another key may have come meanwhile.
        current.set_trusted_keys(roots.trusted_keys.clone());
        roots.since = Instant::now();
        let before = std::mem::replace(&mut roots.current, current);
        let old = roots.earlier.replace(before);
        drop(roots);
        // Closing it removes its roots.
        drop(old);
        Ok(())
    }

    /// Replaces the keys of the server, which are trusted beside those of nix.conf.
    pub(super) fn replace_own_keys(&self, keys: &[SecretKey]) {
        let keys = self
            .options
            .trusted_keys(keys.iter().map(SecretKey::public).collect());
        let mut roots = self.roots.lock();
        roots.current.set_trusted_keys(keys.clone());
        roots.trusted_keys = keys;
    }

    /// Adds a path whose NAR was uploaded before.
    ///
    /// Errors: [`ReceiveError`]. Nothing of a path stays in the store that cannot be added.
    pub(super) fn add(&self, shared: &Shared, narinfo: NarInfo) -> Result<(), ReceiveError> {
        let store = self.current();
        let place = shared.directory.join(&narinfo.url);
        let name = narinfo.url.strip_prefix("nar/").unwrap_or_default();
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            let path = &narinfo.info.path;
            return Err(invalid(format!(
                "cannot receive {path}: its URL does not name a file in nar/"
            )));
        }
        let path = narinfo.info.path.clone();
        let mut was_read = false;
        // Some workers always remain for other paths.
        let slot = self.adding.take();
        let wait = slot.as_ref().map_or(Duration::ZERO, |_| BUSY_WAIT_MAX);
        let added = store.add_path(narinfo.info.clone(), wait, &mut |sink| {
            was_read |= self.read_nar((&store, shared), &narinfo, (name, &place), sink)?;
            Ok(())
        });
        added.map_err(|error| refusal(error, &store))?;
        if !was_read {
            // Another client may need the file.
            return Ok(());
        }
        let mut added = self.added.lock();
        added.truncate(ADDED_LEN_MAX - 1);
        added.push_front((name.to_owned(), path));
        drop(added);
        let len = place.metadata().map_or(0, |found| found.len());
        if fs::remove_file(&place).is_ok() {
            shared.usage.give_back(len);
        }
        Ok(())
    }

    /// Passes on the NAR that was uploaded under a name, or else that of the path to which it was
    /// added. Returns whether it was the file.
    fn read_nar(
        &self,
        (store, shared): (&HostedStore, &Shared),
        narinfo: &NarInfo,
        (name, place): (&str, &Path),
        sink: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
    ) -> Result<bool, HostError> {
        let path = &narinfo.info.path;
        let mut receive = |chunk: &[u8]| {
            if shared.cancel.is_raised() {
                return Err(Error::Cancelled.into());
            }
            sink(chunk)
        };
        let refuse = |reason: String| {
            let url = &narinfo.url;
            HostError::Refused(format!("cannot receive {path}: its NAR {url} {reason}"))
        };
        let file = match open_regular_file(place) {
            Ok(file) => file,
            Err(_) => {
                let same = self.same_contents(store, (name, narinfo))?;
                let same = same.ok_or_else(|| HostError::NarAbsent(path.clone()))?;
                dump_path(&store.store().layout().real_path(&same), &mut receive)?;
                return Ok(false);
            }
        };
        let read_error = |source| Error::File {
            action: "read",
            path: place.to_owned(),
            source,
        };
        let mut body = BufReader::new(file);
        let window = (narinfo.info.nar_size, &shared.decoder_budget);
        let permit = codec::acquire_window(narinfo.compression, &mut body, window);
        let _permit = permit.map_err(read_error)?;
        let decoded = codec::decode(narinfo.compression, body, &mut receive);
        decoded.map_err(|error| match error {
            DecodeError::Receiver(error) => error,
            DecodeError::Unsupported => refuse("has a compression that floe does not know".into()),
            DecodeError::Read(error) => read_error(error).into(),
            DecodeError::Damaged(error) => refuse(format!("cannot be decompressed: {error}")),
        })?;
        Ok(true)
    }

    /// Returns the valid path to which the NAR of a file was added, if it is that of a narinfo.
    fn same_contents(
        &self,
        store: &HostedStore,
        (name, narinfo): (&str, &NarInfo),
    ) -> Result<Option<StorePath>, HostError> {
        let added = self.added.lock();
        let found = added.iter().find(|(added, _)| added == name);
        let found = found.map(|(_, path)| path.clone());
        drop(added);
        let Some(path) = found.filter(|path| *path != narinfo.info.path) else {
            return Ok(None);
        };
        if !self.waiting(&path, || store.keep(&path))? {
            return Ok(None);
        }
        let info = store.store().path_info(&path)?;
        let is_same = info.is_some_and(|info| info.nar_hash == narinfo.info.nar_hash);
        Ok(is_same.then_some(path))
    }

    /// Keeps a path from collections for some time. Returns whether it is valid.
    ///
    /// Errors: [`ReceiveError`].
    pub(super) fn keep(&self, path: &StorePath) -> Result<bool, ReceiveError> {
        let store = self.current();
        let kept = self.waiting(path, || store.keep(path));
        kept.map_err(|error| refusal(error, &store))
    }

    /// Does something that waits for a collection that runs. Some workers always remain for other
    /// uploads.
    ///
    /// Errors: [`HostError::Busy`], and those of `action`.
    fn waiting<T>(
        &self,
        path: &StorePath,
        action: impl FnOnce() -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        if let Some(_slot) = self.waiting.take() {
            return action();
        }
        let (path, reason) = (path.clone(), "a collection of the store may still run");
        Err(HostError::Busy { path, reason })
    }

    /// Makes a link the root of a path.
    ///
    /// Errors: [`ReceiveError`].
    pub(super) fn add_root(&self, link: &Path, path: &StorePath) -> Result<(), ReceiveError> {
        if let Some(directory) = link.parent() {
            fs::create_dir_all(directory)?;
        }
        let store = self.current();
        let added = store.add_root(link, path);
        added.map_err(|error| refusal(error, &store))
    }

    /// Removes a link that is the root of a path.
    ///
    /// Errors: [`ReceiveError`].
    pub(super) fn remove_root(&self, link: &Path, path: &StorePath) -> Result<(), ReceiveError> {
        let store = self.current();
        let removed = IndirectGcRoot::remove(store.store().layout(), link, path);
        removed.map_err(|error| refusal(error.into(), &store))
    }

    /// Registers a realisation.
    ///
    /// Errors: [`ReceiveError`].
    pub(super) fn add_realisation(&self, realisation: Realisation) -> Result<(), ReceiveError> {
        let store = self.current();
        let path = realisation.out_path.clone();
        let added = self.waiting(&path, || store.add_realisation(realisation));
        added.map_err(|error| refusal(error, &store))
    }
}

/// Deletes the files of NARs whose narinfos have not come.
pub(super) fn delete_unused_nars(shared: &Shared) -> io::Result<()> {
    let directory = shared.directory.join("nar");
    let now = SystemTime::now();
    for entry in list_directory(&directory)? {
        let entry = entry?;
        // Another name is that of an upload that runs.
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // The file may be in use, and is then gone in a moment.
        let Ok(found) = entry.metadata() else {
            continue;
        };
        let age = found
            .modified()
            .ok()
            .and_then(|at| now.duration_since(at).ok());
        if age.is_some_and(|age| age > UNUSED_TIME) && fs::remove_file(entry.path()).is_ok() {
            shared.usage.give_back(found.len());
        }
    }
    Ok(())
}

/// Returns the reply to an upload that the store has refused.
fn refusal(error: HostError, store: &HostedStore) -> ReceiveError {
    let forbidden = |message| ReceiveError::new(ReceiveErrorKind::Forbidden, message);
    match error {
        HostError::MissingReferences { path, missing } => {
            let mut names: Vec<&str> = missing.iter().map(StorePath::as_str).collect();
            names.truncate(LISTED_MAX);
            conflict(format!(
                "cannot receive {path}: {} of its references, such as {}, are not here; push them \
                 first",
                missing.len(),
                names.join(", ")
            ))
        }
        HostError::Store(StoreError::Derivation { .. }) => invalid(error.to_string()),
        HostError::NarAbsent(_) | HostError::Different { .. } => conflict(error.to_string()),
        HostError::Store(StoreError::Realisation(_)) => conflict(error.to_string()),
        HostError::Busy { .. } => ReceiveError::new(ReceiveErrorKind::Busy, error.to_string()),
        HostError::Forbidden { .. } => forbidden(error.to_string()),
        HostError::Refused(message) => invalid(message),
        HostError::Store(error) => of_transfer(error.into()),
        HostError::Transfer(error) => match *error {
            Error::Untrusted { path, trusted, .. } => forbidden(format!(
                "cannot receive {path}: no key that the server trusts has signed it; push with \
                 --secret-key-file and one of {}",
                trusted.join(", ")
            )),
            error => of_transfer(error),
        },
        error => {
            let place = store.store().layout().real_store_dir.display();
            let message = format!("cannot add a path to {place}: {error}");
            ReceiveError::new(ReceiveErrorKind::System, message)
        }
    }
}

fn of_transfer(error: Error) -> ReceiveError {
    match error.kind() {
        ErrorKind::Untrusted => invalid(error.to_string()),
        _ => failed(error),
    }
}

/// Fewer than the workers for uploads, of which there are at least 8.
const WAITING_MAX: usize = 4;

/// How long a worker waits for another process that builds or adds a path.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(20);

impl fmt::Debug for ReceivingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivingStore")
            .field("layout", &self.options.layout)
            .finish_non_exhaustive()
    }
}

/// A client that does not send the narinfo of a NAR in this time has probably ended.
const UNUSED_TIME: Duration = Duration::from_secs(3600);

/// How many missing references a reply names.
const LISTED_MAX: usize = 3;

/// How many added NARs are remembered.
const ADDED_LEN_MAX: usize = 1024;
