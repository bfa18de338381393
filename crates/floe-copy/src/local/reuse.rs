//! Reuse of paths that are on this machine already.
//!
//! 1. The copy looks for a missing path in recovered trees of the target and in other stores.
//! 2. It clones, links or copies the tree beside its final place in the target.
//! 3. It hashes every byte of the new tree, and compares the hash with the narinfo of a source.
//! 4. If the tree is wrong, the copy tries the next store, and at last fetches the path.
//!
//! The databases of the other stores do not matter, because the hash decides. A copy is hashed on
//! its way. Clones and links are hashed afterwards, because the original may change before it is
//! cloned.
//!
//! Not guaranteed: a process may later write to a linked file through its name in the other store.

use std::path::Path;

use floe_store::tree::{ReuseMethod, TemporaryTree, dump_path};
use floe_transfer::{Error, ErrorKind, Event, IncomingNar, NarSink, ReuseBy};

use super::target::{LocalTarget, TreeSink};

/// Drops the chunks of a NAR that is only hashed. Its files are in place already.
struct NullSink;

impl NarSink for NullSink {
    fn write(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

impl LocalTarget {
    /// Returns a tree from the first place whose contents match the NAR hash, or `None`.
    ///
    /// Errors: those that would also fail a download, such as a full disk.
    pub(super) fn reuse(&self, nar: &mut IncomingNar<'_>) -> Result<Option<TemporaryTree>, Error> {
        while let Some(recovered) = self.store.take_recovered(nar.path()) {
            // Hard links move the files into the new tree. The recovered tree is deleted
            // afterwards.
            let reused = self.try_reuse(nar, recovered.location(), ReuseBy::HardLink);
            if let Err(error) = &reused
                && error.kind() == ErrorKind::Interrupted
            {
                self.store.keep_for_resume([recovered]);
            }
            if let Some(tree) = reused? {
                return Ok(Some(tree));
            }
        }
        for place in &nar.planned().local_copies {
            let by = nar.options().reuse.by;
            if let Some(tree) = self.try_reuse(nar, place, by)? {
                return Ok(Some(tree));
            }
        }
        Ok(None)
    }

    fn try_reuse(
        &self,
        nar: &mut IncomingNar<'_>,
        place: &Path,
        by: ReuseBy,
    ) -> Result<Option<TemporaryTree>, Error> {
        match self.reuse_from(nar, place, by) {
            Ok(tree) => Ok(Some(tree)),
            // A download would fail too, or the copy is cancelled.
            Err(error) if [ErrorKind::NoSpace, ErrorKind::Interrupted].contains(&error.kind()) => {
                Err(error)
            }
            Err(error) => {
                nar.reset_progress();
                let (error, path) = (&error, nar.path());
                nar.events().event(Event::NotReused { path, place, error });
                Ok(None)
            }
        }
    }

    fn reuse_from(
        &self,
        nar: &mut IncomingNar<'_>,
        place: &Path,
        by: ReuseBy,
    ) -> Result<TemporaryTree, Error> {
        let nar_size = nar.narinfo().info.nar_size;
        let method = match by {
            ReuseBy::Reflink => Some(ReuseMethod::Reflink),
            ReuseBy::HardLink => Some(ReuseMethod::HardLink),
            ReuseBy::Copy => None,
        };
        if let Some(method) = method {
            let reused = self.tree_writer(nar)?.reuse(place, nar_size, method)?;
            if let Some(tree) = reused {
                nar.write_local(place, &mut NullSink, |write| {
                    dump_path(tree.location(), write)
                })?;
                return Ok(tree);
            }
        }
        let mut sink = TreeSink(self.tree_writer(nar)?);
        nar.write_local(place, &mut sink, |write| dump_path(place, write))?;
        Ok(sink.0.finish()?)
    }
}
