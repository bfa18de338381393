//! Temporary directories for stores.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// A temporary directory that is removed even if it contains sealed (read-only) stores.
pub struct Scratch(PathBuf);

/// Creates a temporary directory.
pub fn scratch() -> Scratch {
    scratch_in(&env::temp_dir())
}

/// Creates a temporary directory below another directory.
pub fn scratch_in(parent: &Path) -> Scratch {
    let dir = tempfile::tempdir_in(parent).unwrap().keep();
    Scratch(fs::canonicalize(dir).unwrap())
}

impl Scratch {
    /// Returns the directory, without symlinks in its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file or directory in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _: Result<(), floe_store::StoreError> = floe_store::tree::remove_tree(&self.0);
    }
}
