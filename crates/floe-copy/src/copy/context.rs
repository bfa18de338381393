//! The things that every stage of a copy uses.

use std::sync::Arc;

use floe_format::StorePath;
use floe_transfer::{CopyOptions, Error, EventSink, PlannedPath, Source, Space, Target};

use crate::sources::Sources;

/// The things that every stage of a copy uses.
pub struct CopyContext<'a> {
    /// The sources.
    pub sources: &'a Sources,
    /// The target.
    pub target: &'a dyn Target,
    /// The options.
    pub options: &'a CopyOptions,
    /// Receives the events.
    pub events: &'a dyn EventSink,
}

impl CopyContext<'_> {
    pub(super) fn store_dir_mismatch(&self, source: &dyn Source) -> Error {
        Error::StoreDirMismatch {
            source_name: source.name(),
            found: source.store_dir().as_str().into(),
            wanted: self.target.store_dir().as_str().into(),
        }
    }

    pub(super) fn estimate_space(
        &self,
        planned_paths: &[Arc<PlannedPath>],
    ) -> Result<Option<Space>, Error> {
        let reuses = planned_paths
            .iter()
            .any(|planned| !planned.local_copies.is_empty());
        let mut space = self.target.estimate_space(planned_paths)?;
        if let Some(space) = &mut space {
            space.may_share_files = self.options.optimise || reuses;
        }
        Ok(space)
    }

    /// Whether the target has kept the path, from an interrupted run.
    pub(super) fn has_recovered(&self, path: &StorePath) -> bool {
        let target = self.target.as_resumable();
        target.is_some_and(|target| target.has_recovered(path))
    }

    /// Deletes recovered trees of the target, except those of wanted paths.
    pub(super) fn discard_recovered(&self, is_wanted: &dyn Fn(&StorePath) -> bool) {
        if let Some(target) = self.target.as_resumable() {
            target.discard_recovered(is_wanted);
        }
    }

    /// Keeps staged paths for the next run, or drops them if the target cannot keep them. Returns
    /// the number of kept paths.
    pub(super) fn keep_for_resume(&self, paths: &[StorePath]) -> usize {
        if let Some(target) = self.target.as_resumable() {
            return target.keep_for_resume(paths);
        }
        self.target.discard(paths);
        0
    }

    pub(super) fn check_cancelled(&self) -> Result<(), Error> {
        if self.options.cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}
