//! The temporary root of a program that runs from a store.
//!
//! A program whose store is mounted at another place than that of the files is invisible to a
//! collector: the places of its files do not begin with the store directory. The program therefore
//! inherits the locked file of its root. The lock ends with the last process that has the file
//! open.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::fchown;

use floe_format::StorePath;
use rustix::fs::{FlockOperation, fstat};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::geteuid;

use super::TempRootsFile;
use crate::disk::{Directory, StoreLayout};
use crate::error::{IoContext, StoreError};
use crate::locks::{LockWait, try_lock};

/// A temporary root that lasts as long as a process has its file open.
#[derive(Debug)]
pub struct ProgramRoot {
    file: File,
}

impl ProgramRoot {
    /// Protects paths. They are safe if they are valid afterwards. It also removes the files of
    /// ended programs.
    ///
    /// Errors: those of the system, and those of a running collector.
    pub fn create(
        layout: &StoreLayout,
        paths: &[StorePath],
        lock_wait: &LockWait,
    ) -> Result<ProgramRoot, StoreError> {
        remove_stale_files(layout);
        let mut roots = TempRootsFile::create_of_kind(layout, KIND, false)?;
        give_to_owner(&roots);
        roots.add(paths.iter(), lock_wait)?;
        roots.wait_for_gc(lock_wait)?;
        let file = roots.file.try_clone();
        let file = file.io_context("keep the temporary roots file", roots.path())?;
        // The file must outlive this value.
        roots.is_kept = true;
        Ok(ProgramRoot { file })
    }

    /// Returns the file, which the programs that this process starts inherit.
    ///
    /// Errors: those of the system.
    pub fn into_inherited(self) -> io::Result<OwnedFd> {
        let file = OwnedFd::from(self.file);
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(file)
    }
}

/// Gives a file of root to the owner of the store, whose collectors could not read it otherwise.
fn give_to_owner(roots: &TempRootsFile) {
    let Ok(directory) = fstat(roots.directory.descriptor()) else {
        return;
    };
    if geteuid().is_root() && directory.st_uid != 0 {
        let owner = (Some(directory.st_uid), Some(directory.st_gid));
        let _: io::Result<()> = fchown(&roots.file, owner.0, owner.1);
    }
}

/// Removes the files that no process has locked. Nix's collectors do the same; on a machine without
/// Nix, nothing else would.
fn remove_stale_files(layout: &StoreLayout) {
    let Ok(directory) = Directory::open(&layout.temp_roots_dir()) else {
        return;
    };
    for (name, _) in directory.list().unwrap_or_default() {
        if !name.to_str().is_some_and(is_program_root) {
            continue;
        }
        let entry = directory.entry(&name);
        // Files of other users stay.
        let Ok(file) = entry.open_file() else {
            continue;
        };
        let operation = FlockOperation::NonBlockingLockExclusive;
        if try_lock(&file, &entry.path(), operation).unwrap_or(false) {
            let _: io::Result<()> = entry.remove();
        }
    }
}

/// Whether a file of temporary roots belongs to a program: `<pid>-run-<n>`.
fn is_program_root(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = name.split_once("-run-");
    parts.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

const KIND: &str = "run";

#[cfg(test)]
mod tests {
    use std::fs;

    use floe_format::StoreDir;

    use super::*;

    #[test]
    fn root_lasts_as_long_as_its_file_is_open() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.temp_roots_dir()).unwrap();
        fs::create_dir_all(layout.database_dir()).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let create =
            || ProgramRoot::create(&layout, std::slice::from_ref(&path), &LockWait::default());
        let files = || fs::read_dir(layout.temp_roots_dir()).unwrap().count();
        let first = create().unwrap().into_inherited().unwrap();
        let second = create().unwrap();
        assert_eq!(files(), 2);
        drop(first);
        let third = create().unwrap();
        assert_eq!(files(), 2, "the file of an ended program is still there");
        // No record: a program leaves no trees that another run could recover.
        assert_eq!(fs::read_dir(layout.database_dir()).unwrap().count(), 0);
        drop((second, third));
    }
}
