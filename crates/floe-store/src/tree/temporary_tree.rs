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

/// A complete tree under its temporary name, or at its final place before its row is written.
/// Dropping the value removes the tree and the links that only it uses.
#[derive(Debug)]
pub struct TemporaryTree {
    /// The current location. The tree writer chooses it at the first node.
    pub(super) location: PathBuf,
    /// The temporary name.
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

    /// Names the store path of a tree that was written before it was known.
    pub fn for_path(mut self, path: &StorePath) -> TemporaryTree {
        self.path = path.clone();
        self
    }

    /// The current location of the tree.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// The names of damaged links in `.links` that were replaced. Other paths may have the same
    /// damage.
    pub fn damaged_links(&self) -> &[String] {
        self.links.as_ref().map_or(&[], |links| &links.damaged)
    }

    /// Moves the tree to its final place. Afterwards another writer may use the temporary name.
    pub(crate) fn rename_to(&mut self, place: PathBuf) -> io::Result<()> {
        fs::rename(&self.location, &place)?;
        self.location = place;
        Ok(())
    }

    /// Moves a tree from `place` to a temporary name.
    pub(crate) fn rename_from(&mut self, place: &Path) -> io::Result<()> {
        let location = loop {
            let location = self.free_location();
            match renameat_with(CWD, place, CWD, &location, RenameFlags::NOREPLACE) {
                // Another writer of this process uses the name.
                Err(Errno::EXIST) => continue,
                // Some file systems do not support `RENAME_NOREPLACE`.
                Err(Errno::INVAL | Errno::NOSYS) => fs::rename(place, &location)?,
                renamed => renamed?,
            }
            break location;
        };
        self.location = location;
        self.exists = true;
        Ok(())
    }

    /// Leaves the tree on disk.
    pub(crate) fn detach(mut self) {
        self.exists = false;
    }

    /// Returns the location of the temporary name. Skips names that exist: those of dead processes
    /// and of processes in another PID namespace.
    pub(super) fn free_location(&mut self) -> PathBuf {
        let mut location = self.location.with_file_name(&self.name);
        let first = self.name.clone();
        let mut number = 0_u32;
        while fs::symlink_metadata(&location).is_ok() {
            self.name = format!("{first}-{number}");
            location.set_file_name(&self.name);
            number += 1;
        }
        location
    }
}

impl Drop for TemporaryTree {
    fn drop(&mut self) {
        if !self.exists {
            return;
        }
        // After a failure, the next collection removes the tree. `drop` cannot report an error.
        let _: Result<(), StoreError> = remove_tree(&self.location);
        if let Some(links) = &mut self.links {
            links.remove_unused();
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
        tree.rename_to(place.clone()).unwrap();
        // Another process with the same number, in its own PID namespace, uses the name.
        fs::write(&location, "theirs").unwrap();
        tree.rename_from(&place).unwrap();
        assert_ne!(tree.location(), location);
        tree.rename_to(place.clone()).unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"ours");
        drop(tree);
        assert_eq!(fs::read(&location).unwrap(), b"theirs");
        assert!(!place.exists());
    }
}
