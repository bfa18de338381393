//! Paths that lie on this machine already: taken from there, and not fetched.
//!
//! 1. a path that is to be moved, and was left in the target by a run that ended early, or lies in
//!    another store, is looked for there first;
//! 2. its tree is cloned, linked or copied beside its place in the target;
//! 3. every byte of it is hashed, and the hash is that which a source has promised and signed;
//! 4. what is not right in one store is looked for in the next, and at last fetched.
//!
//! Their databases are not asked: what lies at a place is what was promised or it is not. A copy is
//! hashed on its way. Clones and links are hashed where they lie afterwards, since what they were
//! made from may have changed between a look at it and its cloning.
//!
//! Not guaranteed: that nobody writes to a linked file, through its name in the other store.

use std::path::{Path, PathBuf};

use floe_format::{StoreDir, StorePath};
use floe_store::StoreWriter;
use floe_store::tree::ReuseMethod;
use floe_store::tree::TemporaryTree;
use floe_store::tree::dump_path;

use super::receive::{NarSink, Transfer};
use super::{StagedObject, TargetKind};
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::options::{Reuse, ReuseBy};
use crate::store_uri::StoreUri;
use crate::url::redact_credentials;

/// The directory that holds the paths of what a user calls a store: that of
/// [`StoreUri::parse`], or else a directory whose entries are the paths themselves.
///
/// Errors: [`Error::InvalidStoreUri`] for a binary cache, and where there is no directory.
pub fn reuse_directory(
    text: &str,
    store_dir: Option<&StoreDir>,
    data_home: Option<&Path>,
) -> Result<PathBuf, Error> {
    let fail = |reason: &str| {
        Err(Error::InvalidStoreUri {
            text: redact_credentials(text),
            reason: reason.into(),
        })
    };
    let StoreUri::Local(store) = StoreUri::parse(text, store_dir, data_home)? else {
        return fail("a binary cache has no files to reuse; name it with --from");
    };
    if store.layout.real_store_dir.is_dir() {
        return Ok(store.layout.real_store_dir);
    }
    match std::path::absolute(text) {
        Ok(directory) if directory.is_dir() => Ok(directory),
        _ => fail("there is neither a store nor a directory of store paths"),
    }
}

/// Where a path lies in those stores.
pub(super) fn local_copies(reuse: &Reuse, path: &StorePath) -> Vec<PathBuf> {
    let copies = reuse.directories.iter().map(|dir| dir.join(path.as_str()));
    copies
        .filter(|place| place.symlink_metadata().is_ok())
        .collect()
}

/// Nobody has to write down what was written already.
struct NullSink;

impl NarSink for NullSink {
    fn write(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

impl Transfer<'_> {
    /// The path from the first place that has it whole and right; `None` if none has.
    ///
    /// Errors: those that fetching it would not help against.
    pub(super) fn reuse_local_copy(&mut self) -> Result<Option<StagedObject>, Error> {
        let item = self.item;
        let path = &item.narinfo.info.path;
        let TargetKind::Store(store) = &self.copy.target.0 else {
            return Ok(None);
        };
        while let Some(recovered) = store.take_recovered(path) {
            // Its files become those of the new tree, before it is removed itself.
            match self.try_reuse(store, recovered.location(), ReuseBy::HardLink) {
                Ok(Some(staged)) => return Ok(Some(staged)),
                Ok(None) => {}
                Err(error) => {
                    if error.kind() == ErrorKind::Interrupted {
                        store.keep_for_resume([recovered]);
                    }
                    return Err(error);
                }
            }
        }
        for place in &item.local_copies {
            let by = self.copy.options.reuse.by;
            if let Some(staged) = self.try_reuse(store, place, by)? {
                return Ok(Some(staged));
            }
        }
        Ok(None)
    }

    fn try_reuse(
        &mut self,
        store: &StoreWriter,
        place: &Path,
        by: ReuseBy,
    ) -> Result<Option<StagedObject>, Error> {
        match self.reuse_from(store, place, by) {
            Ok(tree) => Ok(Some(self.staged(tree))),
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                let (error, path) = (&error, &self.item.narinfo.info.path);
                self.reset_progress();
                let events = self.copy.events;
                events.event(Event::NotReused { path, place, error });
                Ok(None)
            }
        }
    }

    fn reuse_from(
        &mut self,
        store: &StoreWriter,
        place: &Path,
        by: ReuseBy,
    ) -> Result<TemporaryTree, Error> {
        let nar_size = self.item.narinfo.info.nar_size;
        let name = place.display().to_string();
        let how = match by {
            ReuseBy::Reflink => Some(ReuseMethod::Reflink),
            ReuseBy::HardLink => Some(ReuseMethod::HardLink),
            ReuseBy::Copy => None,
        };
        if let Some(how) = how {
            let made = self.tree_writer(store)?.reuse(place, nar_size, how)?;
            if let Some(tree) = made {
                self.copy_local_nar(&name, &mut NullSink, |write| {
                    dump_path(tree.location(), write)
                })?;
                return Ok(tree);
            }
        }
        let mut writer = self.tree_writer(store)?;
        self.copy_local_nar(&name, &mut writer, |write| dump_path(place, write))?;
        Ok(writer.finish()?)
    }
}

/// Whether a failure is one of the target, or the end of the whole move.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Interrupted)
}
