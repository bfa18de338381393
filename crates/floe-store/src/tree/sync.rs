//! Waits until a tree is on disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::disk::list_directory;
use crate::error::{IoContext as _, StoreError};

/// Waits until all files and directories of a tree are on disk. A symbolic link reaches the disk
/// with its directory.
pub(crate) fn sync_tree(path: &Path) -> Result<(), StoreError> {
    let kind = fs::symlink_metadata(path).io_context("examine", path)?;
    if kind.is_dir() {
        for entry in list_directory(path).io_context("list", path)? {
            sync_tree(entry.io_context("list", path)?.path())?;
        }
    } else if !kind.is_file() {
        return Ok(());
    }
    let file = File::open(path).io_context("open", path)?;
    file.sync_all().io_context("sync", path)
}

/// Whether trees have so many files that one `syncfs` is faster than an `fsync` of each.
pub(crate) fn has_many_files<'a>(
    trees: impl Iterator<Item = &'a Path>,
) -> Result<bool, StoreError> {
    let mut todo: Vec<PathBuf> = trees.map(Path::to_owned).collect();
    let mut count = 0;
    while let Some(path) = todo.pop() {
        count += 1;
        if count > FSYNC_FILES_MAX {
            return Ok(true);
        }
        let metadata = fs::symlink_metadata(&path).io_context("examine", &path)?;
        if metadata.is_dir() {
            for entry in list_directory(&path).io_context("list", &path)? {
                todo.push(entry.io_context("list", &path)?.path().to_owned());
            }
        }
    }
    Ok(false)
}

/// An `fsync` costs a flush of the disk, so a few files are the limit. A `syncfs` also writes what
/// other programs have written.
const FSYNC_FILES_MAX: usize = 8;
