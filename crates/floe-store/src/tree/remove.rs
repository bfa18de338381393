//! A sealed tree → nothing.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{At, StoreError};

/// Removes a sealed tree, or nothing if there is none.
pub fn remove_tree(path: &Path) -> Result<(), StoreError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).at("examining", path),
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return fs::remove_file(path).at("removing", path),
    }
    if !rustix::process::geteuid().is_root() {
        unseal(path)?;
    }
    fs::remove_dir_all(path).at("removing", path)
}

/// Makes the directories of a sealed tree writable again, without which only root may empty
/// them.
fn unseal(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).at("unsealing", directory)?;
    for entry in fs::read_dir(directory).at("listing", directory)? {
        let entry = entry.at("listing", directory)?;
        if entry.file_type().at("examining", entry.path())?.is_dir() {
            unseal(&entry.path())?;
        }
    }
    Ok(())
}
