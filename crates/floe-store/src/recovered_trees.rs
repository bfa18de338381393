//! Trees that a run has left which ended early: sealed, and never registered.
//!
//! 1. [`crash_recovery`](crate::crash_recovery) keeps trees of a dead run that look sealed, under
//!    names of its own run, and adds their paths to its own temporary roots;
//! 2. whoever wants such a path takes the tree, hashes it, and fetches the path only if it is not
//!    what it should be;
//! 3. what nobody wants is removed: by a move that knows all that it wants, and at the end of one
//!    that has ended well;
//! 4. what is there when the file of temporary roots is given up stays, and so does the file, as
//!    if its process had been killed.
//!
//! Writers that share their temporary roots share this too: a move that has failed in a process is
//! taken up again in it while others go on.
//!
//! Not guaranteed: anything about the contents. The machine may have lost its power meanwhile.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use floe_format::StorePath;

use crate::tree::TemporaryTree;

/// Sealed trees of runs that ended early, by what they are meant to become.
#[derive(Debug, Default)]
pub(crate) struct RecoveredTrees(Mutex<HashMap<StorePath, Vec<TemporaryTree>>>);

impl RecoveredTrees {
    fn trees(&self) -> MutexGuard<'_, HashMap<StorePath, Vec<TemporaryTree>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Lets all of them lie where they are; whether there is any.
    pub(crate) fn detach_all(&self) -> bool {
        let trees = std::mem::take(&mut *self.trees());
        let is_any = !trees.is_empty();
        let trees = trees.into_values().flatten();
        trees.for_each(TemporaryTree::detach);
        is_any
    }
}

/// Whether a tree looks like one that was written to its end: the root is sealed last.
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
