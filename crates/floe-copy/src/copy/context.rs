//! The things that every stage of a copy uses.

use std::sync::Arc;

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

    pub(super) fn check_cancelled(&self) -> Result<(), Error> {
        match self.options.cancel.is_raised() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }
}
