//! Opens files below a directory of the operator without following symbolic links.
//!
//! Another user may be able to write below the directory. A symbolic link there could lead to any
//! file that this process may read, and an ordinary open of a FIFO waits for a writer.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Opens a file or directory for reading. `relative` has normal names only. The directory itself
/// may be a symbolic link. The open does not wait for the writer of a FIFO.
///
/// Errors: those of the system; [`Errno::LOOP`] or [`Errno::NOTDIR`] for a symbolic link.
pub fn open_beneath(directory: &Path, relative: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(&directory, relative, READ, Mode::empty(), resolve) {
        // Linux before 5.6, or a sandbox that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => walk(directory, relative),
        opened => opened,
    }
}

/// Opens one name after the other, so that no name may be a symbolic link.
fn walk(directory: OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for component in relative.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(Errno::XDEV),
        }
    }
    let (last, parents) = names.split_last().ok_or(Errno::NOENT)?;
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = parents
        .iter()
        .try_fold(directory, |parent, name| open_at(&parent, name, step))?;
    open_at(&parent, last, READ | OFlags::NOFOLLOW)
}

fn open_at(parent: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(parent, name, flags, Mode::empty())
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Opens a name by both ways, which have to agree.
    fn open(directory: &Path, name: &str) -> Result<(), Errno> {
        let root = openat(CWD, directory, OFlags::PATH, Mode::empty()).unwrap();
        let walked = walk(root, Path::new(name)).map(drop);
        let opened = open_beneath(directory, Path::new(name)).map(drop);
        assert_eq!(
            opened.is_ok(),
            walked.is_ok(),
            "{name}: {opened:?}, {walked:?}"
        );
        opened
    }

    #[test]
    fn no_symbolic_link_is_followed_and_no_fifo_waits() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("logs");
        fs::create_dir_all(logs.join("a")).unwrap();
        fs::write(logs.join("a/file"), "text").unwrap();
        fs::write(dir.path().join("secret"), "text").unwrap();
        symlink("../../secret", logs.join("a/link")).unwrap();
        symlink("a", logs.join("b")).unwrap();
        symlink("logs", dir.path().join("alias")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, logs.join("fifo"), fifo, Mode::RWXU, 0).unwrap();

        open(&logs, "a/file").unwrap();
        open(&dir.path().join("alias"), "a/file").unwrap();
        open(&logs, "fifo").unwrap();
        assert_eq!(open(&logs, "absent"), Err(Errno::NOENT));
        for refused in ["a/link", "b/file", "../secret", "a/../../secret"] {
            open(&logs, refused).unwrap_err();
        }
    }
}
