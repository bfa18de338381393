//! Removes a sealed tree.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{IoContext, StoreError, is_not_found};

/// Removes a sealed tree if it exists. Other processes may remove it at the same time.
pub fn remove_tree(path: &Path) -> Result<(), StoreError> {
    let found = ignore_not_found(fs::symlink_metadata(path)).io_context("examine", path)?;
    let removed = match found {
        None => return Ok(()),
        Some(metadata) if metadata.is_dir() => {
            if !rustix::process::geteuid().is_root() {
                unseal(path)?;
            }
            fs::remove_dir_all(path)
        }
        Some(_) => fs::remove_file(path),
    };
    ignore_not_found(removed).io_context("remove", path)?;
    Ok(())
}

/// Returns `None` if another process has removed the file.
fn ignore_not_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match is_not_found(&result) {
        true => Ok(None),
        false => result.map(Some),
    }
}

/// Makes the directories of a sealed tree writable. Without this, only root could empty them.
fn unseal(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt as _;
    let unsealed = fs::set_permissions(directory, fs::Permissions::from_mode(0o755));
    ignore_not_found(unsealed).io_context("unseal", directory)?;
    let entries = ignore_not_found(fs::read_dir(directory)).io_context("list", directory)?;
    for entry in entries.into_iter().flatten() {
        let entry = entry.io_context("list", directory)?;
        let kind = ignore_not_found(entry.file_type()).io_context("examine", entry.path())?;
        if kind.is_some_and(|kind| kind.is_dir()) {
            unseal(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn concurrent_removals_of_one_tree_all_succeed() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        for _ in 0..ROUNDS {
            for n in 0..20 {
                let directory = tree.join(format!("{n}/deep"));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join("file"), "").unwrap();
            }
            thread::scope(|scope| {
                for _ in 0..4 {
                    // An ordinary user needs to unseal the tree first.
                    scope.spawn(|| unseal(&tree).and_then(|()| remove_tree(&tree)).unwrap());
                }
            });
            assert!(!tree.exists());
        }
    }

    /// High enough that some calls meet a file that another thread has just removed.
    const ROUNDS: usize = 50;
}
