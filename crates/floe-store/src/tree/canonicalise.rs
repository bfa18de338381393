//! Gives an existing tree the modes, times and owner of store paths, where they differ. A copy of a
//! store by a program that does not keep them has others.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fchown, fstat, openat,
    statat, utimensat,
};
use rustix::io::Errno;

use super::dump::{as_path, check_depth, is_executable, open_directory};
use super::unpack::{CANONICAL_TIMES, seal_directory, set_canonical_times};
use crate::error::{IoContext as _, StoreError};

/// Gives the tree at `path` the modes and times of store paths, and the owner `owner` if this user
/// may do so. The contents stay as they are.
///
/// Errors: those of the system; [`StoreError::UnsupportedFile`], [`StoreError::TooDeep`].
pub(crate) fn canonicalise(path: &Path, owner: u32) -> Result<(), StoreError> {
    let mut canonicaliser = Canonicaliser {
        owner: rustix::process::geteuid().is_root().then_some(owner),
        path: path.into(),
    };
    canonicaliser.node(CWD, path.as_os_str().as_encoded_bytes(), 0)
}

struct Canonicaliser {
    /// The owner of all files; `None` if only root may set it.
    owner: Option<u32>,
    /// The current position, for error messages.
    path: PathBuf,
}

impl Canonicaliser {
    fn node(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        depth: usize,
    ) -> Result<(), StoreError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = statat(parent, name, flags).io_context("examine", &self.path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.directory(parent, name, depth, &stat),
            _ if self.is_canonical(&stat) => Ok(()),
            FileType::RegularFile => self.file(parent, name),
            FileType::Symlink => {
                let changed = self.symlink(parent, name, &stat);
                changed.io_context("set the time of", &self.path)
            }
            _ => Err(StoreError::UnsupportedFile(self.path.clone())),
        }
    }

    fn directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        depth: usize,
        stat: &Stat,
    ) -> Result<(), StoreError> {
        check_depth(depth, &self.path)?;
        let (directory, entries) = open_directory(parent, name, &self.path)?;
        for entry in entries {
            self.path.push(as_path(&entry.name));
            self.node(directory.as_fd(), &entry.name, depth + 1)?;
            self.path.pop();
        }
        if self.is_canonical(stat) {
            return Ok(());
        }
        let change = || {
            self.give_away(directory.as_fd(), stat)?;
            seal_directory(&directory)
        };
        change().io_context("set the mode and the time of", &self.path)
    }

    fn file(&self, parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), StoreError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::empty()).io_context("open", &self.path)?;
        let change = || {
            let stat = fstat(&file)?;
            self.give_away(file.as_fd(), &stat)?;
            // A change of the owner clears some bits, so the mode comes afterwards.
            fchmod(&file, canonical_mode(&stat))?;
            set_canonical_times(&file)
        };
        change().io_context("set the mode and the time of", &self.path)
    }

    fn symlink(&self, parent: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> Result<(), Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if let Some(owner) = self.new_owner(stat) {
            chownat(parent, name, Some(owner), None::<Gid>, flags)?;
        }
        utimensat(parent, name, &CANONICAL_TIMES, flags)
    }

    fn give_away(&self, file: BorrowedFd<'_>, stat: &Stat) -> Result<(), Errno> {
        match self.new_owner(stat) {
            Some(owner) => fchown(file, Some(owner), None),
            None => Ok(()),
        }
    }

    fn new_owner(&self, stat: &Stat) -> Option<Uid> {
        let owner = self.owner.filter(|owner| *owner != stat.st_uid);
        owner.map(Uid::from_raw)
    }

    fn is_canonical(&self, stat: &Stat) -> bool {
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let mode = Mode::from_raw_mode(stat.st_mode);
        stat.st_mtime == CANONICAL_TIMES.last_modification.tv_sec
            && self.new_owner(stat).is_none()
            && (is_link || mode == canonical_mode(stat))
    }
}

fn canonical_mode(stat: &Stat) -> Mode {
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Mode::from_raw_mode(if is_directory || is_executable(stat) {
        0o555
    } else {
        0o444
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn modes_and_times_become_those_of_store_paths() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("tree");
        fs::create_dir_all(tree.join("bin")).unwrap();
        fs::write(tree.join("bin/tool"), "a").unwrap();
        fs::set_permissions(tree.join("bin/tool"), fs::Permissions::from_mode(0o6711)).unwrap();
        fs::write(tree.join("text"), "b").unwrap();
        let outside = scratch.path().join("outside");
        fs::write(&outside, "c").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        let owner = fs::metadata(&tree).unwrap().uid();
        canonicalise(&tree, owner).unwrap();
        for (name, mode) in [
            ("", 0o555),
            ("bin", 0o555),
            ("bin/tool", 0o555),
            ("text", 0o444),
        ] {
            let found = fs::symlink_metadata(tree.join(name)).unwrap();
            assert_eq!((found.mode() & 0o7777, found.mtime()), (mode, 1), "{name}");
        }
        assert_eq!(fs::symlink_metadata(tree.join("link")).unwrap().mtime(), 1);
        assert_eq!(fs::read_to_string(tree.join("text")).unwrap(), "b");
        // The target of a link is no part of the tree.
        assert_ne!(fs::metadata(&outside).unwrap().mtime(), 1);
        let changed = fs::metadata(tree.join("text")).unwrap();
        canonicalise(&tree, owner).unwrap();
        let same = fs::metadata(tree.join("text")).unwrap();
        let ctime = |found: &fs::Metadata| (found.ctime(), found.ctime_nsec());
        assert_eq!(
            ctime(&changed),
            ctime(&same),
            "a canonical file was changed"
        );
    }
}
