//! Opens a directory component by component.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path};
use std::rc::Rc;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::{DIRECTORY, Directory, NewMode, create_at, file_type, is_trusted_owner, read_link_at};
use crate::error::{IoContext as _, StoreError};

/// Opens a directory, and creates it with its parents if `new` is given.
pub(super) fn open(path: &Path, new: Option<NewMode>) -> Result<Directory, StoreError> {
    let opened = |descriptor| Directory {
        descriptor,
        path: path.to_path_buf(),
    };
    // One call for the usual case. It fails for any link, and on Linux before 5.6.
    let resolve = ResolveFlags::NO_SYMLINKS;
    match openat2(CWD, path, DIRECTORY, Mode::empty(), resolve) {
        Ok(descriptor) => return Ok(opened(descriptor)),
        Err(Errno::NOENT) if new.is_none() => {
            return Err(Errno::NOENT).io_context("open the directory", path);
        }
        Err(_) => {}
    }
    walk(path, new).map(opened)
}

/// Opens one component after the other, and follows links of trusted owners.
fn walk(path: &Path, new: Option<NewMode>) -> Result<OwnedFd, StoreError> {
    let context = |error: Errno| Err(error).io_context("open the directory", path);
    let root = match openat(CWD, c"/", DIRECTORY, Mode::empty()) {
        Ok(root) => Rc::new(root),
        Err(error) => return context(error),
    };
    let mut todo: Vec<OsString> = Vec::new();
    push_components(&mut todo, path);
    // The directories from the root to the current one, so that `..` needs no look at the disk.
    let mut parents = vec![root.clone()];
    let mut links = 0;
    while let Some(name) = todo.pop() {
        if name == "/" {
            parents.truncate(1);
            continue;
        }
        if name == ".." {
            parents.truncate(parents.len().saturating_sub(1).max(1));
            continue;
        }
        let parent = parents.last().unwrap_or(&root).clone();
        let found = match open_component(&parent, &name, new) {
            Ok(found) => found,
            Err(error) => return context(error),
        };
        let stat = match fstat(&found) {
            Ok(stat) => stat,
            Err(error) => return context(error),
        };
        match file_type(&stat) {
            FileType::Directory => parents.push(Rc::new(found)),
            FileType::Symlink => {
                links += 1;
                if links > LINKS_MAX {
                    return context(Errno::LOOP);
                }
                if !is_trusted_owner(stat.st_uid) {
                    return Err(StoreError::ForeignLink {
                        path: path.to_path_buf(),
                        link: name.into(),
                        owner: stat.st_uid,
                    });
                }
                let target = read_link_at(found.as_fd(), OsStr::new(""));
                let target = target.io_context("open the directory", path)?;
                push_components(&mut todo, &target);
            }
            _ => return context(Errno::NOTDIR),
        }
    }
    let last = parents.pop().unwrap_or_else(|| root.clone());
    drop((parents, root));
    let last = Rc::try_unwrap(last).or_else(|shared| shared.try_clone());
    last.io_context("open the directory", path)
}

/// Opens a component, and creates it as a directory if it does not exist and `new` is given.
fn open_component(parent: &OwnedFd, name: &OsStr, new: Option<NewMode>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(parent, name, flags, Mode::empty());
    let Some(mode) = new else { return open() };
    match open() {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    match create_at(parent, name, mode) {
        // Another process has created it meanwhile.
        Ok(()) | Err(Errno::EXIST) => open(),
        Err(error) => Err(error),
    }
}

/// Adds the components of a path to those that are still to be opened, the first one last.
fn push_components(todo: &mut Vec<OsString>, path: &Path) {
    let names = path
        .components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir => Some("/".into()),
            Component::CurDir | Component::Prefix(_) => None,
        });
    todo.extend(names);
}

/// The kernel follows as many links in one path.
const LINKS_MAX: usize = 40;
