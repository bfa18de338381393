//! Sealed trees that an earlier run unpacked and did not register.
//!
//! 1. [`crash_recovery`](crate::crash_recovery) keeps the sealed trees of a dead run. It renames
//!    them to names of its own run and adds their paths to its own temporary roots.
//! 2. A copy that needs such a path claims the tree and hashes it. It fetches the path only if the
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

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use floe_format::StorePath;

use crate::locks::lock_mutex;
use crate::tree::TemporaryTree;

/// Sealed trees of earlier runs, by store path.
#[derive(Debug, Default)]
pub(crate) struct RecoveredTrees(Mutex<HashMap<StorePath, Vec<TemporaryTree>>>);

impl RecoveredTrees {
    fn trees(&self) -> MutexGuard<'_, HashMap<StorePath, Vec<TemporaryTree>>> {
        lock_mutex(&self.0)
    }

    pub(crate) fn insert(&self, tree: TemporaryTree) {
        let mut trees = self.trees();
        trees.entry(tree.path().clone()).or_default().push(tree);
    }

    pub(crate) fn contains(&self, path: &StorePath) -> bool {
        self.trees().contains_key(path)
    }

    /// Removes and returns one of the trees of a path.
    pub(crate) fn pop(&self, path: &StorePath) -> Option<TemporaryTree> {
        let mut trees = self.trees();
        let of_path = trees.get_mut(path)?;
        let tree = of_path.pop();
        if of_path.is_empty() {
            trees.remove(path);
        }
        tree
    }

    /// Deletes the trees of all paths that are not wanted.
    pub(crate) fn remove_unless(&self, is_wanted: impl Fn(&StorePath) -> bool) {
        let unwanted = self
            .trees()
            .extract_if(|path, _| !is_wanted(path))
            .collect::<Vec<_>>();
        // Deleting trees is slow, so it happens after the mutex is released.
        drop(unwanted);
    }

    /// Leaves all trees on disk. Returns whether there is any.
    pub(crate) fn detach_all(&self) -> bool {
        let trees = std::mem::take(&mut *self.trees());
        let is_any = !trees.is_empty();
        let trees = trees.into_values().flatten();
        trees.for_each(TemporaryTree::detach);
        is_any
    }
}

/// Whether a tree looks complete: the root is sealed last.
pub(crate) fn is_sealed(tree: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(tree) else {
        return false;
    };
    let has_final_mode = match found.is_dir() {
        true => found.mode() & 0o7777 == 0o555,
        false => true,
    };
    has_final_mode && (found.mtime(), found.mtime_nsec()) == (1, 0)
}
