//! A root directory with one more directory than that of the system, such as `/nix/store` on a
//! machine without it.
//!
//! The new root is a file system in memory, in which every entry of the old root is mounted at its
//! place. Links are made again.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use floe_store::WrittenFile;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use rustix::process::{chdir, chroot, pivot_root};

use super::clone_mount::{clone_mount, move_to};

/// The entries of the new root.
#[derive(Debug, Default)]
pub(super) struct RootTree(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    /// Relative to the root.
    path: PathBuf,
    kind: EntryKind,
}

#[derive(Debug)]
enum EntryKind {
    /// A directory that is made anew.
    NewDirectory,
    Directory(OwnedFd),
    File(OwnedFd),
    Link(PathBuf),
}

impl RootTree {
    /// Clones all entries of the root, and adds a directory that is not there.
    pub(super) fn with_directory(directory: &Path) -> Result<RootTree, Errno> {
        let names: Vec<OsString> = directory
            .components()
            .filter_map(|component| match component {
                Component::Normal(name) => Some(name.to_owned()),
                _ => None,
            })
            .collect();
        let mut tree = RootTree::default();
        let mut relative = PathBuf::new();
        for name in names {
            tree.clone_entries(&relative, &name);
            relative.push(&name);
            tree.0.push(Entry {
                path: relative.clone(),
                kind: EntryKind::NewDirectory,
            });
        }
        Ok(tree)
    }

    /// Clones the entries of a directory of the old root, except for one. An entry that cannot be
    /// cloned is left out: the program could not use it either.
    fn clone_entries(&mut self, relative: &Path, except: &OsString) {
        let Ok(entries) = fs::read_dir(Path::new("/").join(relative)) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(file_type) = entry.file_type() else {
                continue;
            };
            if entry.file_name() == *except {
                continue;
            }
            let kind = match () {
                () if file_type.is_symlink() => fs::read_link(&path).ok().map(EntryKind::Link),
                () if file_type.is_dir() => clone_mount(&path).ok().map(EntryKind::Directory),
                () => clone_mount(&path).ok().map(EntryKind::File),
            };
            let path = relative.join(entry.file_name());
            self.0.extend(kind.map(|kind| Entry { path, kind }));
        }
    }

    /// Makes this tree the root of the process, with a clone of the store mounted at `store_dir`.
    pub(super) fn enter(self, store_dir: &Path, store: &OwnedFd) -> Result<(), Errno> {
        // Any directory will do: the old root disappears below.
        let place = ["/tmp", "/usr", "/etc"].map(Path::new);
        let place = place.into_iter().find(|place| place.is_dir());
        let place = place.ok_or(Errno::NOENT)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", place, "tmpfs", flags, c"mode=755")?;
        for Entry { path, kind } in self.0 {
            make(&place.join(path), &kind)?;
        }
        let relative = store_dir.strip_prefix("/").unwrap_or(store_dir);
        move_to(store, &place.join(relative))?;
        chdir(place)?;
        match pivot_root(".", ".") {
            // The old root lies below the new one now.
            Ok(()) => unmount(".", UnmountFlags::DETACH)?,
            // The first root of the system cannot be replaced.
            Err(Errno::INVAL) => chroot(".")?,
            Err(error) => return Err(error),
        }
        chdir("/")?;
        // Outside, a user cannot create files in the root either.
        mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | flags, c"")
    }
}

fn make(place: &Path, kind: &EntryKind) -> Result<(), Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    match kind {
        EntryKind::NewDirectory => fs::create_dir(place).map_err(errno),
        EntryKind::Link(target) => symlink(target, place).map_err(errno),
        EntryKind::Directory(mount) => {
            fs::create_dir(place).map_err(errno)?;
            move_to(mount, place)
        }
        EntryKind::File(mount) => {
            let file = WrittenFile::create(place, Mode::from_raw_mode(0o644));
            file.and_then(WrittenFile::close).map_err(errno)?;
            move_to(mount, place)
        }
    }
}
