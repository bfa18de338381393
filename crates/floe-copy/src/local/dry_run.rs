//! A local store as the target of a dry run: it need not exist, and nothing is created.

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_format::{HashPart, StoreDir, StorePath};
use floe_store::{Damage, StoreLayout, StoreReader};
use floe_transfer::{
    CommitOutcome, Error, IncomingNar, MissingPaths, Needs, PlannedPath, Space, Target,
};
use parking_lot::Mutex;

use super::target::reason;
use super::vanished_trees::VanishedTrees;

/// A local store that is only read.
#[derive(Debug)]
pub(crate) struct ReadOnlyStore {
    pub(super) layout: StoreLayout,
    /// `None` if there is no store yet.
    pub(super) reader: Option<StoreReader>,
    /// The valid paths that the copy would repair.
    pub(super) damaged: Mutex<BTreeMap<StorePath, Damage>>,
    pub(super) vanished_trees: VanishedTrees,
}

impl Target for ReadOnlyStore {
    fn store_dir(&self) -> &StoreDir {
        &self.layout.store_dir
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        let Some(reader) = &self.reader else {
            return Ok(paths.to_vec().into());
        };
        let references = |path: &StorePath| reader.references(path);
        let vanished = self.vanished_trees.find(paths, &self.layout, &references)?;
        let mut damaged = self.damaged.lock();
        damaged.extend(vanished.into_iter().map(|path| (path, Damage::Missing)));
        let mut missing = MissingPaths::default();
        for path in paths {
            match (reader.references(path)?, damaged.get(path)) {
                (None, _) => missing.paths.push(path.clone()),
                (Some(_), Some(damage)) => {
                    missing.damaged.push((path.clone(), reason(*damage)));
                    missing.paths.push(path.clone());
                }
                // The references of a valid path may be damaged.
                (Some(references), None) if !damaged.is_empty() => {
                    missing.unchecked_references.extend(references);
                }
                (Some(_), None) => {}
            }
        }
        Ok(missing)
    }

    /// A dry run transfers nothing.
    fn receive(&self, _: &mut IncomingNar<'_>) -> Result<(), Error> {
        Err(Error::Internal("a dry run transfers a NAR"))
    }

    fn commit(&self, _: &[StorePath]) -> Result<CommitOutcome, Error> {
        Ok(CommitOutcome::default())
    }

    fn query_path_from_hash_part(&self, hash_part: HashPart) -> Result<Option<StorePath>, Error> {
        match &self.reader {
            Some(reader) => Ok(reader.query_path_from_hash_part(hash_part)?),
            None => Ok(None),
        }
    }

    fn estimate_space(&self, planned_paths: &[Arc<PlannedPath>]) -> Result<Option<Space>, Error> {
        Space::estimate(&self.layout.real_store_dir, planned_paths, Needs::of_tree).map(Some)
    }
}
