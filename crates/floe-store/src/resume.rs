//! Trees that a run has left which ended early: sealed, and never registered.
//!
//! 1. who clears up after the dead ([`leftovers`](crate::leftovers)) keeps what looks sealed, under
//!    a name of its own run, and writes down the paths among its own temporary roots;
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
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floe_format::StorePath;

use crate::error::{At, StoreError};
use crate::temp_roots;
use crate::tree::write::TemporaryTree;
use crate::writer::StoreWriter;

/// Sealed trees of runs that ended early, by what they are meant to become.
#[derive(Debug, Default)]
pub(crate) struct Left(Mutex<HashMap<StorePath, Vec<TemporaryTree>>>);

impl Left {
    fn trees(&self) -> MutexGuard<'_, HashMap<StorePath, Vec<TemporaryTree>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, tree: TemporaryTree) {
        let mut trees = self.trees();
        trees.entry(tree.path().clone()).or_default().push(tree);
    }

    /// Lets all of them lie where they are; whether there is any.
    pub(crate) fn let_lie(&self) -> bool {
        let trees = std::mem::take(&mut *self.trees());
        let is_any = !trees.is_empty();
        let trees = trees.into_values().flatten();
        trees.for_each(TemporaryTree::let_lie);
        is_any
    }
}

impl StoreWriter {
    /// Makes a tree of the dead one of this run.
    pub(crate) fn adopt(&self, path: &StorePath, place: PathBuf) -> Result<(), StoreError> {
        // First, so that who comes after this run knows what the tree is.
        temp_roots::lock(&self.temp_roots).note(path)?;
        let mut tree = self.tree_writer(path).into_tree();
        tree.take_back_from(&place).at("renaming", &place)?;
        self.left.put(tree);
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

    /// Leaves sealed trees to the next writer, which finds them as it finds what a killed run has
    /// left. They are garbage to every collector once nobody has these temporary roots.
    pub fn leave(&self, trees: impl IntoIterator<Item = TemporaryTree>) {
        trees.into_iter().for_each(|tree| self.left.put(tree));
    }

    /// Removes those that nobody has taken and nobody wants. What other writers want that are at
    /// work with the same temporary roots is not known here; then all stay.
    pub fn discard_left(&self, is_wanted: impl Fn(&StorePath) -> bool) {
        if Arc::strong_count(&self.temp_roots) > 1 {
            return;
        }
        let unwanted = self
            .left
            .trees()
            .extract_if(|path, _| !is_wanted(path))
            .collect::<Vec<_>>();
        // It takes its time, in which nobody has to wait.
        drop(unwanted);
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
