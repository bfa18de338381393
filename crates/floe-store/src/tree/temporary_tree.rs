//! A complete tree under its temporary name, beside its final place in the store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::links::TreeLinks;
use super::remove::remove_tree;
use crate::error::StoreError;

/// A complete tree under its temporary name. Dropping the value removes the tree.
#[derive(Debug)]
pub struct TemporaryTree {
    pub(super) location: PathBuf,
    pub(super) name: String,
    pub(super) path: StorePath,
    /// Whether this writer has created the tree. Before that, the name may belong to another
    /// process, because process numbers are unique only within a PID namespace.
    pub(super) exists: bool,
    /// The added links, if equal files are linked.
    pub(super) links: Option<TreeLinks>,
}

impl TemporaryTree {
    /// The final store path of the tree.
    pub fn path(&self) -> &StorePath {
        &self.path
    }

    /// The current location of the tree.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Whether equal files are linked.
    pub(super) fn is_optimising(&self) -> bool {
        self.links.is_some()
    }

    /// The names of damaged links in `.links` that were replaced. Other paths may have the same
    /// damage.
    pub fn damaged_links(&self) -> &[String] {
        self.links.as_ref().map_or(&[], TreeLinks::damaged)
    }
}

impl TemporaryTree {
    /// Moves the tree to its final place. Afterwards another writer may use the temporary name.
    pub(crate) fn rename_to(&mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.location, place)?;
        self.exists = false;
        Ok(())
    }

    /// Moves a tree to a temporary name.
    pub(crate) fn rename_from(&mut self, place: &Path) -> io::Result<()> {
        loop {
            self.choose_free_name();
            match renameat_with(CWD, place, CWD, &self.location, RenameFlags::NOREPLACE) {
                // Another writer of this process uses the name.
                Err(Errno::EXIST) => {}
                // Some file systems do not support `RENAME_NOREPLACE`.
                Err(Errno::INVAL | Errno::NOSYS) => break fs::rename(place, &self.location)?,
                renamed => break renamed?,
            }
        }
        self.exists = true;
        Ok(())
    }

    /// Removes a tree that was moved to its final place, and the links that only it uses.
    pub(crate) fn remove_renamed(mut self, place: &Path) {
        self.exists = false;
        self.remove(place);
    }

    /// Leaves the tree on disk.
    pub(crate) fn detach(mut self) {
        self.exists = false;
    }

    fn remove(&mut self, location: &Path) {
        // After a failure, the next collection removes the tree. `drop` cannot report an error.
        let _: Result<(), StoreError> = remove_tree(location);
        if let Some(links) = &mut self.links {
            links.remove_unused();
        }
    }

    /// Skips names that exist: those of dead processes and of processes in another PID namespace.
    pub(super) fn choose_free_name(&mut self) {
        let first = self.name.clone();
        for number in 0_u32.. {
            if fs::symlink_metadata(&self.location).is_err() {
                return;
            }
            self.name = format!("{first}-{number}");
            self.location.set_file_name(&self.name);
        }
    }
}

impl Drop for TemporaryTree {
    fn drop(&mut self) {
        if self.exists {
            self.remove(&self.location.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_tree_does_not_remove_reuser_of_its_old_name() {
        let directory = tempfile::tempdir().unwrap();
        let location = directory
            .path()
            .join("00000000000000000000000000000000-floe-1-0");
        let place = directory.path().join("place");
        fs::write(&location, "ours").unwrap();
        let mut tree = TemporaryTree {
            name: "00000000000000000000000000000000-floe-1-0".into(),
            path: StorePath::parse("00000000000000000000000000000000-x").unwrap(),
            location: location.clone(),
            exists: true,
            links: None,
        };
        tree.rename_to(&place).unwrap();
        // Another process with the same number, in its own PID namespace, uses the name.
        fs::write(&location, "theirs").unwrap();
        tree.rename_from(&place).unwrap();
        assert_ne!(tree.location(), location);
        tree.rename_to(&place).unwrap();
        drop(tree);
        assert_eq!(fs::read(&location).unwrap(), b"theirs");
        assert_eq!(fs::read(&place).unwrap(), b"ours");
    }
}
