//! Lists directories. An error on closing a directory is harmless, because nothing was written to
//! it, but the standard library panics then. rustix ignores it.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    path: PathBuf,
    /// Some file systems report it as unknown.
    kind: FileType,
}

impl DirectoryEntry {
    /// The directory as it was given, and the name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name without the directory.
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Whether the entry is a directory, and no link to one.
    ///
    /// Errors: those of the system.
    pub fn is_dir(&self) -> io::Result<bool> {
        match self.kind {
            FileType::Unknown => Ok(self.metadata()?.is_dir()),
            kind => Ok(kind.is_dir()),
        }
    }

    /// The metadata of the entry itself, also if it is a symbolic link.
    ///
    /// Errors: those of the system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        fs::symlink_metadata(&self.path)
    }
}

/// Lists a directory in no order, without `.` and `..`.
///
/// Errors: those of the system, also for each entry.
pub fn list_directory(
    directory: &Path,
) -> io::Result<impl Iterator<Item = io::Result<DirectoryEntry>> + use<>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let entries = Dir::new(openat(CWD, directory, flags, Mode::empty())?)?;
    let directory = directory.to_owned();
    Ok(entries.filter_map(move |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.into())),
        };
        let name = entry.file_name().to_bytes();
        let kind = entry.file_type();
        let path = || directory.join(OsStr::from_bytes(name));
        (name != b"." && name != b"..").then(|| Ok(DirectoryEntry { path: path(), kind }))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_has_each_entry_and_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("b")).unwrap();
        fs::write(dir.path().join("c"), "text").unwrap();
        let entries: io::Result<Vec<_>> = list_directory(dir.path()).unwrap().collect();
        let mut found: Vec<_> = entries
            .unwrap()
            .iter()
            .map(|it| (it.file_name().to_owned(), it.is_dir().unwrap()))
            .collect();
        found.sort();
        let expected = [("a", true), ("b", false), ("c", false)];
        assert_eq!(found, expected.map(|(name, is_dir)| (name.into(), is_dir)));
        let error = list_directory(&dir.path().join("c")).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
