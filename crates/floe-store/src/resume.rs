//! Trees that a run has left which ended early: sealed, and never registered.
//!
//! 1. who clears up after the dead ([`leftovers`](crate::leftovers)) keeps what looks sealed, under
//!    a name of its own run, and writes down the paths among its own temporary roots;
//! 2. whoever wants such a path takes the tree, hashes it, and fetches the path only if it is not
//!    what it should be;
//! 3. what nobody has taken is removed when a move has ended well; otherwise it stays, with the
//!    file of temporary roots, as if this run had been killed.
//!
//! Not guaranteed: anything about the contents. The machine may have lost its power meanwhile.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floe_format::StorePath;

use crate::error::{At, StoreError};
use crate::register::StagedPath;
use crate::temp_roots;
use crate::tree::write::TemporaryTree;
use crate::writer::StoreWriter;

/// Sealed trees of runs that are dead, by what they are meant to become.
#[derive(Debug, Default)]
pub(crate) struct Left(Mutex<HashMap<StorePath, Vec<TemporaryTree>>>);

impl Left {
    fn trees(&self) -> MutexGuard<'_, HashMap<StorePath, Vec<TemporaryTree>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_all(&self) -> impl Iterator<Item = TemporaryTree> + use<> {
        std::mem::take(&mut *self.trees()).into_values().flatten()
    }
}

impl StoreWriter {
    /// Makes a tree of the dead one of this run.
    pub(crate) fn adopt(&self, path: &StorePath, place: PathBuf) -> Result<(), StoreError> {
        // First, so that who comes after this run knows what the tree is.
        temp_roots::lock(&self.temp_roots).note(path)?;
        let mut tree = self.tree_writer(path).into_tree();
        tree.take_back_from(&place).at("renaming", &place)?;
        self.put_back(tree);
        Ok(())
    }

    /// Whether a run that ended early has left a tree for that path, whole or not.
    pub fn has_left(&self, path: &StorePath) -> bool {
        self.left.trees().contains_key(path)
    }

    /// One of these trees, with nothing known of its contents. It is removed when it is dropped.
    pub fn take_left(&self, path: &StorePath) -> Option<TemporaryTree> {
        let mut trees = self.left.trees();
        let of_path = trees.get_mut(path)?;
        let tree = of_path.pop();
        if of_path.is_empty() {
            trees.remove(path);
        }
        tree
    }

    /// Gives back a tree that was taken and not used.
    pub fn put_back(&self, tree: TemporaryTree) {
        let mut trees = self.left.trees();
        trees.entry(tree.path().clone()).or_default().push(tree);
    }

    /// Removes all of these trees that nobody has taken. Until then they stay for the next writer.
    pub fn discard_left(&self) {
        drop(self.left.take_all());
    }

    /// Leaves complete paths to the next writer, which finds them as it finds what a killed run has
    /// left. They are garbage to every collector once this writer is gone.
    pub fn leave(&self, paths: impl IntoIterator<Item = StagedPath>) {
        self.leave_trees(paths.into_iter().map(|staged| staged.tree));
    }

    fn leave_trees(&self, trees: impl Iterator<Item = TemporaryTree>) {
        for tree in trees {
            temp_roots::lock(&self.temp_roots).keep();
            tree.leave();
        }
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        self.leave_trees(self.left.take_all());
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
