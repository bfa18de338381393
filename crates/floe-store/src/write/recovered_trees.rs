//! Sealed trees that an earlier run unpacked and did not register.
//!
//! 1. [`crash_recovery`](super::crash_recovery) keeps the sealed trees of a dead run. It renames
//!    them to names of its own run and adds their paths to its own temporary roots.
//! 2. A copy that needs such a path takes the tree and hashes it. It fetches the path only if the
//!    hash differs.
//! 3. A copy removes trees that it does not need as soon as it knows its whole plan, and all trees
//!    after success.
//! 4. If trees remain when the writer closes, they stay on disk together with the roots file, as
//!    after a crash.
//!
//! Writers that share their temporary roots share the recovered trees. A process can therefore
//! resume a failed copy while other copies run.
//!
//! Not guaranteed: anything about the contents. A power failure may have damaged them.

use std::path::Path;
use std::sync::Arc;

use floe_format::StorePath;

use super::crash_recovery::Recovery;
use super::writer::StoreWriter;
use crate::error::{IoContext as _, StoreError};
use crate::tree::TemporaryTree;

impl StoreWriter {
    /// Removes or claims the files of runs that were killed. Returns whether there were any.
    pub(super) fn recover_crashed_runs(&self) -> bool {
        let recovery = Recovery {
            layout: self.layout(),
            database: &self.database(),
            claim: &|path, place| self.claim(path, place),
        };
        recovery.recover_all()
    }

    /// Takes ownership of a sealed tree of a killed run.
    fn claim(&self, path: &StorePath, place: &Path) -> Result<(), StoreError> {
        // The root comes first. If this run is killed as well, the next run needs the root to find
        // the path of the tree.
        self.temp_roots.file.lock().append([path].into_iter())?;
        let mut tree = self.tree_writer(path).into_empty_tree();
        tree.rename_from(place).io_context("rename", place)?;
        self.keep_for_resume([tree]);
        Ok(())
    }

    /// Whether a recovered tree exists for a path. It may be incomplete.
    pub fn has_recovered(&self, path: &StorePath) -> bool {
        self.temp_roots.recovered.lock().contains_key(path)
    }

    /// Whether a recovered tree exists for any path.
    pub fn has_any_recovered(&self) -> bool {
        !self.temp_roots.recovered.lock().is_empty()
    }

    /// Takes one of the recovered trees of a path. Its contents are unverified. Dropping the tree
    /// removes it.
    pub fn take_recovered(&self, path: &StorePath) -> Option<TemporaryTree> {
        let mut recovered = self.temp_roots.recovered.lock();
        let trees = recovered.get_mut(path)?;
        let tree = trees.pop();
        if trees.is_empty() {
            recovered.remove(path);
        }
        tree
    }

    /// Keeps sealed trees for the next writer, which recovers them as after a crash. A collector
    /// deletes them once no process holds these temporary roots.
    pub fn keep_for_resume(&self, trees: impl IntoIterator<Item = TemporaryTree>) {
        for tree in trees {
            self.temp_roots
                .recovered
                .lock()
                .entry(tree.path().clone())
                .or_default()
                .push(tree);
        }
    }

    /// Deletes recovered trees that this copy does not need. If other writers share the temporary
    /// roots, all trees stay, because those writers may need them.
    pub fn discard_recovered(&self, is_wanted: impl Fn(&StorePath) -> bool) {
        if Arc::strong_count(&self.temp_roots) == 1 {
            let mut recovered = self.temp_roots.recovered.lock();
            let unwanted: Vec<_> = recovered.extract_if(|path, _| !is_wanted(path)).collect();
            // Deleting trees is slow, so it happens after the mutex is released.
            drop(recovered);
            drop(unwanted);
        }
    }
}
