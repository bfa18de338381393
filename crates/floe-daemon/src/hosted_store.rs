//! A store and the rights of its client.

use std::collections::BTreeSet;
use std::sync::Arc;

use floe_format::{NarInfo, PathInfo, StoreDir, StorePath, TrustedKeys};
use floe_store::{GcSettings, Progress, StoreLayout, StoreReader, StoreWriter, WriteOptions};
use floe_transfer::Cancel;
use floe_wire::worker::CLOSURE_LEN_MAX;
use parking_lot::RwLock;

use crate::access::Access;
use crate::arriving_paths::ArrivingPaths;
use crate::error::HostError;

/// A store and the rights of its client.
pub struct HostedStore {
    access: RwLock<Arc<Access>>,
    /// Protects paths from collections until the connection ends.
    writer: Option<StoreWriter>,
    reader: StoreReader,
    substituter: Option<Arc<dyn Substituter>>,
    cancel: Cancel,
    arriving: Arc<ArrivingPaths>,
    pub(crate) gc_settings: GcSettings,
    pub(crate) write_options: WriteOptions,
}

/// The substituters of a store. An error is the reason in words.
pub trait Substituter: Send + Sync {
    /// Fetches those of some paths that are missing, with their closures, as far as substituters
    /// have them.
    fn fetch(&self, paths: &[StorePath], cancel: &Cancel) -> Result<(), String>;

    /// Returns what the substituters know of those of some paths that they have. With `closures`,
    /// also of the paths in their closures.
    fn query(
        &self,
        paths: &[StorePath],
        closures: bool,
        cancel: &Cancel,
    ) -> Result<Vec<NarInfo>, String>;

    /// Reports why paths were not fetched that the client can send itself.
    fn warn(&self, reason: &str);
}

impl HostedStore {
    /// Opens a store. Creates it if it does not exist and the client may write.
    ///
    /// Errors: those of [`StoreWriter::open_with`] and [`StoreReader::open`].
    pub fn open(
        layout: StoreLayout,
        access: Access,
        options: &WriteOptions,
    ) -> Result<HostedStore, HostError> {
        let writer = access
            .may_write
            .then(|| StoreWriter::open_with(layout.clone(), options))
            .transpose()?;
        let store = HostedStore {
            access: RwLock::new(Arc::new(access)),
            writer,
            reader: StoreReader::open_with(layout, options.lock_wait.clone())?,
            substituter: None,
            cancel: Cancel::default(),
            arriving: Arc::default(),
            gc_settings: GcSettings::default(),
            write_options: options.clone(),
        };
        store.discard_needless_trees();
        Ok(store)
    }

    /// Deletes the trees of killed processes whose paths have become valid. The others stay for a
    /// copy, which continues with them.
    pub fn discard_needless_trees(&self) {
        if let Some(writer) = &self.writer {
            writer.discard_recovered(|path| !matches!(self.reader.is_valid(path), Ok(true)));
        }
    }

    /// Sets where missing paths are fetched.
    pub fn set_substituter(&mut self, substituter: Arc<dyn Substituter>) {
        self.substituter = Some(substituter);
    }

    /// Sets the flag that ends work whose client has gone.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    /// Sets the paths that other clients of this process are sending to the same store.
    pub fn set_arriving_paths(&mut self, arriving: Arc<ArrivingPaths>) {
        self.arriving = arriving;
    }

    /// Sets which paths a collection keeps.
    pub fn set_gc_settings(&mut self, settings: GcSettings) {
        self.gc_settings = settings;
    }

    /// Exchanges the keys that may have signed paths, for requests that follow.
    pub fn set_trusted_keys(&self, trusted_keys: TrustedKeys) {
        let mut access = self.access.write();
        *access = Arc::new(Access {
            trusted_keys,
            ..Access::clone(&access)
        });
    }

    pub(crate) fn access(&self) -> Arc<Access> {
        self.access.read().clone()
    }

    /// Whether paths need a signature if the client is not trusted.
    pub fn requires_signatures(&self) -> bool {
        self.access().requires_signatures
    }

    /// Whether the client is trusted.
    pub fn is_trusted(&self) -> bool {
        self.access().is_trusted
    }

    /// The store directory.
    pub fn store_dir(&self) -> &StoreDir {
        &self.reader.layout().store_dir
    }

    /// Ends work whose client has gone.
    pub(crate) fn progress(&self) -> impl Progress + use<> {
        UntilCancelled(self.cancel.clone())
    }

    pub(crate) fn arriving_paths(&self) -> &ArrivingPaths {
        &self.arriving
    }

    pub(crate) fn reader(&self) -> &StoreReader {
        &self.reader
    }

    /// Returns the store for writing.
    ///
    /// Errors: [`HostError::Forbidden`].
    pub(crate) fn writer(&self, action: &str) -> Result<&StoreWriter, HostError> {
        self.writer.as_ref().ok_or_else(|| HostError::Forbidden {
            action: action.to_owned(),
            reason: "the client may only read; use --write".into(),
        })
    }

    /// Returns which of some paths are valid. If the client may write, its connection protects them
    /// from collections: Nix's `copy` sends neither the valid paths nor roots for them. With
    /// `lock`, the reply also waits for a collection of an older Nix. With `substitute`, missing
    /// paths are fetched first. A client that may only read gets neither, as from Nix.
    pub(crate) fn query_valid(
        &self,
        mut paths: BTreeSet<StorePath>,
        (lock, substitute): (bool, bool),
    ) -> Result<BTreeSet<StorePath>, HostError> {
        if let Some(writer) = &self.writer {
            writer.add_temp_roots(paths.iter())?;
            if lock || substitute {
                // A collection that began before may not know these roots.
                writer.wait_for_gc()?;
            }
        }
        if substitute {
            // The client sends what is missing. An unreachable cache must not prevent that.
            match (self.substitute(&paths), &self.substituter) {
                (Err(HostError::Substitute(reason)), Some(substituter)) => {
                    substituter.warn(&reason)
                }
                (substituted, _) => substituted?,
            }
        }
        let mut failure = None;
        paths.retain(|path| {
            let is_valid = self.reader.is_valid(path);
            is_valid.unwrap_or_else(|error| {
                failure.get_or_insert(error);
                false
            })
        });
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(paths),
        }
    }

    /// Fetches missing paths. Nix, too, reports a path that no substituter has only as not valid.
    pub(crate) fn substitute(&self, paths: &BTreeSet<StorePath>) -> Result<(), HostError> {
        let Some(substituter) = &self.substituter else {
            return Ok(());
        };
        let mut missing = Vec::new();
        for path in paths {
            if !self.reader.is_valid(path)? {
                missing.push(path.clone());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        substituter
            .fetch(&missing, &self.cancel)
            .map_err(HostError::Substitute)
    }

    /// Protects paths from collections, and fetches those that are missing, as far as substituters
    /// have them.
    pub(crate) fn ensure(&self, paths: &BTreeSet<StorePath>) -> Result<(), HostError> {
        if let Some(writer) = &self.writer {
            writer.add_temp_roots(paths.iter())?;
        }
        self.substitute(paths)
    }

    /// Protects the closures of those paths that are valid from collections, and returns their
    /// metadata.
    ///
    /// Errors: [`HostError::Refused`] for too many paths. The client then queries one by one.
    pub(crate) fn rooted_closure(&self, paths: &[StorePath]) -> Result<Vec<PathInfo>, HostError> {
        let closure = self.reader.closure_references(paths)?;
        if closure.len() > CLOSURE_LEN_MAX {
            return Err(HostError::Refused(format!(
                "cannot send a closure at once: it has more than {CLOSURE_LEN_MAX} paths"
            )));
        }
        if let Some(writer) = &self.writer {
            writer.add_temp_roots(closure.keys())?;
        }
        Ok(self.reader.closure(paths)?)
    }

    /// Ends a request whose client has gone.
    ///
    /// Errors: [`HostError::Ended`].
    pub(crate) fn check_cancelled(&self) -> Result<(), HostError> {
        if self.cancel.is_raised() {
            return Err(HostError::Ended("a request".into()));
        }
        Ok(())
    }

    /// Returns what substituters know of paths.
    pub(crate) fn query_substituters(
        &self,
        paths: &[StorePath],
        closures: bool,
    ) -> Result<Vec<NarInfo>, HostError> {
        match &self.substituter {
            Some(substituter) if !paths.is_empty() => substituter
                .query(paths, closures, &self.cancel)
                .map_err(HostError::Substitute),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the description of a valid path.
    ///
    /// Errors: [`HostError::NotValid`], and those of the database.
    pub(crate) fn valid_path_info(&self, path: &StorePath) -> Result<PathInfo, HostError> {
        let info = self.reader.path_info(path)?;
        info.ok_or_else(|| HostError::NotValid(self.store_dir().full_path(path)))
    }
}

/// Ends work when a flag is raised.
struct UntilCancelled(Cancel);

impl Progress for UntilCancelled {
    fn should_continue(&self) -> bool {
        !self.0.is_raised()
    }
}
