//! A sealed tree → nothing.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{At, StoreError};

/// Removes a sealed tree, or nothing if there is none. Others may be removing it at the same time.
pub fn remove_tree(path: &Path) -> Result<(), StoreError> {
    match unless_gone(fs::symlink_metadata(path)).at("examining", path)? {
        None => return Ok(()),
        Some(metadata) if metadata.is_dir() => {}
        Some(_) => {
            return unless_gone(fs::remove_file(path))
                .at("removing", path)
                .map(drop);
        }
    }
    if !rustix::process::geteuid().is_root() {
        unseal(path)?;
    }
    unless_gone(fs::remove_dir_all(path))
        .at("removing", path)
        .map(drop)
}

/// `None` for what another process has removed meanwhile.
fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Makes the directories of a sealed tree writable again, without which only root may empty
/// them.
fn unseal(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt as _;
    let unsealed = fs::set_permissions(directory, fs::Permissions::from_mode(0o755));
    unless_gone(unsealed).at("unsealing", directory)?;
    let entries = unless_gone(fs::read_dir(directory)).at("listing", directory)?;
    for entry in entries.into_iter().flatten() {
        let entry = entry.at("listing", directory)?;
        let kind = unless_gone(entry.file_type()).at("examining", entry.path())?;
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
    fn trees_that_several_remove_at_once_are_removed_for_each_of_them() {
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
                    // As an ordinary user does it.
                    scope.spawn(|| unseal(&tree).and_then(|()| remove_tree(&tree)).unwrap());
                }
            });
            assert!(!tree.exists());
        }
    }

    /// So many that some meet what another has just removed.
    const ROUNDS: usize = 50;
}
