//! A complete tree under its temporary name, beside its place in the store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::links::TreeLinks;
use super::remove::remove_tree;
use crate::error::StoreError;

/// A complete tree under its temporary name. Dropping it removes it.
#[derive(Debug)]
pub struct TemporaryTree {
    pub(super) location: PathBuf,
    pub(super) name: String,
    pub(super) path: StorePath,
    /// Whether anything of it is there. Until then the name may be somebody else's: process
    /// numbers are unique in one namespace only.
    pub(super) exists: bool,
    /// Present where equal files are to be one.
    pub(super) links: Option<TreeLinks>,
}

impl TemporaryTree {
    /// The store path that the tree is meant to become.
    pub fn path(&self) -> &StorePath {
        &self.path
    }

    /// Where the tree lies now.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Whether equal files are to be one.
    pub(super) fn is_optimising(&self) -> bool {
        self.links.is_some()
    }

    /// The names of links in `.links` that were damaged, and were replaced: other paths may have
    /// the same damage.
    pub fn damaged_links(&self) -> &[String] {
        self.links.as_ref().map_or(&[], TreeLinks::damaged)
    }
}

impl TemporaryTree {
    /// Moves the tree to its place. Its old name is anybody's from then on.
    pub(crate) fn rename_to(&mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.location, place)?;
        self.exists = false;
        Ok(())
    }

    /// Moves a tree beside its place, or back there.
    pub(crate) fn rename_from(&mut self, place: &Path) -> io::Result<()> {
        loop {
            self.choose_free_name();
            match renameat_with(CWD, place, CWD, &self.location, RenameFlags::NOREPLACE) {
                // Another writer of this process has taken the name since.
                Err(Errno::EXIST) => {}
                // Not every file system knows that flag.
                Err(Errno::INVAL | Errno::NOSYS) => break fs::rename(place, &self.location)?,
                renamed => break renamed?,
            }
        }
        self.exists = true;
        Ok(())
    }

    /// Removes the tree from its place, to which it was moved, and the links that only it uses.
    pub(crate) fn remove_renamed(mut self, place: &Path) {
        self.exists = false;
        self.remove(place);
    }

    /// Lets the tree lie where it is.
    pub(crate) fn detach(mut self) {
        self.exists = false;
    }

    fn remove(&mut self, location: &Path) {
        // A failure leaves garbage that the next collection takes; there is nobody to tell.
        let _: Result<(), StoreError> = remove_tree(location);
        if let Some(links) = &mut self.links {
            links.remove_unused();
        }
    }

    /// Passes over names that the dead, or the living of another process namespace, have left.
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
        // Another process of the same number, in a container of its own, takes the name.
        fs::write(&location, "theirs").unwrap();
        tree.rename_from(&place).unwrap();
        assert_ne!(tree.location(), location);
        tree.rename_to(&place).unwrap();
        drop(tree);
        assert_eq!(fs::read(&location).unwrap(), b"theirs");
        assert_eq!(fs::read(&place).unwrap(), b"ours");
    }
}
