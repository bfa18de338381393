//! Waits until a tree is on disk.

use std::fs::{self, File};
use std::path::Path;

use crate::error::{IoContext as _, StoreError};

/// Waits until all files and directories of a tree are on disk. A symbolic link reaches the disk
/// with its directory.
pub(crate) fn sync_tree(path: &Path) -> Result<(), StoreError> {
    let kind = fs::symlink_metadata(path).io_context("examine", path)?;
    if kind.is_dir() {
        for entry in fs::read_dir(path).io_context("list", path)? {
            sync_tree(&entry.io_context("list", path)?.path())?;
        }
    } else if !kind.is_file() {
        return Ok(());
    }
    let file = File::open(path).io_context("open", path)?;
    file.sync_all().io_context("sync", path)
}
