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

use std::path::Path;

use floe_store::tree::{ReuseMethod, TemporaryTree, dump_path};
use floe_transfer::{Error, ErrorKind, Event, IncomingNar, NarSink, ReuseBy};

use super::target::{LocalTarget, TreeSink};

/// Drops a NAR that is only hashed: its files are in place already.
struct NullSink;

impl NarSink for NullSink {
    fn write(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

impl LocalTarget {
    /// Returns the path's tree from the first place that has it complete and right, or `None`.
    ///
    /// Errors: those that also fetching the path would meet.
    pub(super) fn reuse(&self, nar: &mut IncomingNar<'_>) -> Result<Option<TemporaryTree>, Error> {
        while let Some(recovered) = self.store.take_recovered(nar.path()) {
            // The new tree gets the files of the recovered one, which is removed afterwards.
            match self.try_reuse(nar, recovered.location(), ReuseBy::HardLink) {
                Ok(Some(tree)) => return Ok(Some(tree)),
                Ok(None) => {}
                Err(error) => {
                    if error.kind() == ErrorKind::Interrupted {
                        self.store.keep_for_resume([recovered]);
                    }
                    return Err(error);
                }
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
            Err(error) if is_final(&error) => Err(error),
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

/// Whether a failure is one of the target, or the end of the whole move.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Interrupted)
}
