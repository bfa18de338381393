//! A local store as a target.

use std::collections::HashMap;
use std::sync::Arc;

use floe_format::{HashPart, PathInfo, Realisation, StoreDir, StorePath};
use floe_store::tree::{TemporaryTree, TreeWriter};
use floe_store::{Damage, StagedPath, StoreWriter};
use floe_transfer::{
    CollectedTarget, CommitOutcome, Error, Event, IncomingNar, MissingPaths, NarSink, Needs,
    PlannedPath, RealisationTarget, ResumableTarget, SignatureTarget, SigningOutcome, Space,
    Target, TargetFacts,
};
use parking_lot::Mutex;

use super::vanished_trees::VanishedTrees;

/// A local store that is open for writing.
#[derive(Debug)]
pub(crate) struct LocalTarget {
    pub(super) store: Arc<StoreWriter>,
    /// Complete trees beside their final places, until they are committed.
    staged: Mutex<HashMap<StorePath, StagedPath>>,
    vanished_trees: VanishedTrees,
}

/// Unpacks a NAR into a tree.
pub(super) struct TreeSink(pub(super) TreeWriter);

impl NarSink for TreeSink {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        Ok(self.0.write(nar)?)
    }
}

impl LocalTarget {
    pub(super) fn new(store: Arc<StoreWriter>) -> LocalTarget {
        LocalTarget {
            store,
            staged: Mutex::default(),
            vanished_trees: VanishedTrees::default(),
        }
    }

    pub(super) fn tree_writer(&self, nar: &IncomingNar<'_>) -> Result<TreeWriter, Error> {
        Ok(if nar.options().optimise {
            self.store.optimising_tree_writer(nar.path())?
        } else {
            self.store.tree_writer(nar.path())
        })
    }

    /// Stages a verified tree.
    pub(super) fn stage(&self, nar: &IncomingNar<'_>, tree: TemporaryTree) {
        let info = nar.narinfo().info.clone();
        for link in tree.damaged_links() {
            let path = &info.path;
            nar.events().event(Event::DamagedLink { path, link });
        }
        self.put(StagedPath { tree, info });
    }

    /// Removes paths from the staged ones, and returns them in their order.
    fn take(&self, paths: &[StorePath]) -> Vec<StagedPath> {
        let mut staged = self.staged.lock();
        let taken = paths.iter().filter_map(|path| staged.remove(path));
        taken.collect()
    }

    /// Adds the valid paths whose contents a crash of the system has damaged, and the references of
    /// the other valid paths.
    fn add_damaged(
        &self,
        paths: &[StorePath],
        not_valid: Vec<StorePath>,
    ) -> Result<MissingPaths, Error> {
        let mut missing = MissingPaths::default();
        for path in paths {
            if let Some(damage) = self.store.damage_of(path) {
                missing.damaged.push((path.clone(), reason(damage)));
            } else if !not_valid.contains(path) {
                let references = self.store.references(path)?;
                missing
                    .unchecked_references
                    .extend(references.into_iter().flatten());
                continue;
            }
            missing.paths.push(path.clone());
        }
        Ok(missing)
    }

    fn put(&self, path: StagedPath) -> StorePath {
        let name = path.info.path.clone();
        self.staged.lock().insert(name.clone(), path);
        name
    }
}

/// The reason why the copy fetches a valid path.
pub(super) fn reason(damage: Damage) -> String {
    match damage {
        Damage::Missing => "its files are missing in the store".into(),
        Damage::Modified => "its files in the store are damaged".into(),
        Damage::Row => "its row in the database of the store is damaged".into(),
    }
}

impl Target for LocalTarget {
    fn store_dir(&self) -> &StoreDir {
        &self.store.layout().store_dir
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            // A run that found trees of an earlier one first deletes those that it does not need,
            // so that their space is free.
            receives_early: !self.store.has_any_recovered(),
            ..TargetFacts::default()
        }
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        self.store.add_temp_roots(paths.iter())?;
        let missing = self.store.query_missing(paths)?;
        let references = |path: &StorePath| self.store.references(path);
        let layout = self.store.layout();
        let vanished = self.vanished_trees.find(paths, layout, &references)?;
        if !vanished.is_empty() {
            let damage = vanished.into_iter().map(|path| (path, Damage::Missing));
            self.store.record_damaged(&damage.collect::<Vec<_>>())?;
        }
        if self.store.has_damaged() {
            self.add_damaged(paths, missing)
        } else {
            Ok(missing.into())
        }
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        let mut sink = TreeSink(self.tree_writer(nar)?);
        nar.write_to(&mut sink)?;
        self.stage(nar, sink.0.finish()?);
        Ok(())
    }

    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        let outcome = self.store.register(self.take(batch))?;
        let busy = outcome.busy.into_iter();
        let missing_references = outcome.missing_references.into_iter();
        let refused = outcome.refused.into_iter();
        let put = |(path, missing)| (self.put(path), missing);
        Ok(CommitOutcome {
            unsigned: 0,
            sent_bytes: 0,
            valid: outcome.valid,
            busy: busy.map(|path| self.put(path)).collect(),
            missing_references: missing_references.map(put).collect(),
            refused: refused.map(|(path, error)| (path, error.into())).collect(),
            end: None,
        })
    }

    fn query_path_from_hash_part(&self, hash_part: HashPart) -> Result<Option<StorePath>, Error> {
        Ok(self.store.query_path_from_hash_part(hash_part)?)
    }

    fn estimate_space(&self, planned_paths: &[Arc<PlannedPath>]) -> Result<Option<Space>, Error> {
        let directory = &self.store.layout().real_store_dir;
        Space::estimate(directory, planned_paths, Needs::of_tree).map(Some)
    }

    fn discard(&self, paths: &[StorePath]) {
        // Dropping deletes the files, without the lock.
        drop(self.take(paths));
    }

    fn as_resumable(&self) -> Option<&dyn ResumableTarget> {
        Some(self)
    }

    fn as_collected(&self) -> Option<&dyn CollectedTarget> {
        Some(self)
    }

    fn as_signature_target(&self) -> Option<&dyn SignatureTarget> {
        Some(self)
    }

    fn as_realisation_target(&self) -> Option<&dyn RealisationTarget> {
        Some(self)
    }
}

impl SignatureTarget for LocalTarget {
    fn merge_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error> {
        let mut outcome = SigningOutcome::default();
        for (info, signing) in infos.iter().zip(self.store.merge_signatures(infos)?) {
            outcome.add(&info.path, signing);
        }
        Ok(outcome)
    }
}

impl RealisationTarget for LocalTarget {
    fn register_realisations(&self, realisations: &[Realisation]) -> Result<(), Error> {
        Ok(self.store.register_realisations(realisations)?)
    }
}

impl ResumableTarget for LocalTarget {
    fn reuse_local_copy(&self, nar: &mut IncomingNar<'_>) -> Result<bool, Error> {
        let staged = self.reuse(nar)?.map(|tree| self.stage(nar, tree));
        Ok(staged.is_some())
    }

    fn keep_for_resume(&self, paths: &[StorePath]) -> usize {
        let staged = self.take(paths);
        let count = staged.len();
        let trees = staged.into_iter().map(|path| path.tree);
        self.store.keep_for_resume(trees);
        count
    }

    fn has_recovered(&self, path: &StorePath) -> bool {
        self.store.has_recovered(path)
    }

    fn discard_recovered(&self, is_wanted: &dyn Fn(&StorePath) -> bool) {
        self.store.discard_recovered(is_wanted);
    }
}

impl CollectedTarget for LocalTarget {
    fn wait_for_gc(&self) -> Result<(), Error> {
        Ok(self.store.wait_for_gc()?)
    }

    fn query_vanished(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, Error> {
        self.store.wait_for_gc()?;
        Ok(self.store.query_missing(paths)?)
    }
}
