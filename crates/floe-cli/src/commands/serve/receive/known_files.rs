//! The facts about the files of NARs that the server has read while it received them.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use floe_cache::NarFile;
use parking_lot::Mutex;

/// The facts about files, by name.
#[derive(Debug, Default)]
pub(super) struct KnownFiles(Mutex<HashMap<String, (Version, NarFile)>>);

/// The facts that differ if another process has written the file since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl KnownFiles {
    /// Remembers the facts about the file at a place, which had another name before. Another
    /// process may have deleted or replaced it.
    pub(super) fn insert(&self, name: &str, place: &Path, (before, file): (Version, NarFile)) {
        let Some(version) = Version::at(place).filter(|now| now.is_same_file(&before)) else {
            return;
        };
        let mut files = self.0.lock();
        if files.len() >= COUNT_MAX {
            // The narinfos that are still to come cost one more reading of their NARs.
            files.clear();
        }
        files.insert(name.to_owned(), (version, file));
    }

    /// Returns the facts about the file at a place, if it is still the same file.
    pub(super) fn get(&self, name: &str, place: &Path) -> Option<NarFile> {
        let found = Version::at(place)?;
        let files = self.0.lock();
        let (version, file) = files.get(name)?;
        (*version == found).then(|| file.clone())
    }
}

impl Version {
    /// Returns that of the file at a place, if there is one.
    pub(super) fn at(place: &Path) -> Option<Version> {
        let found = place.symlink_metadata().ok()?;
        Some(Version {
            device: found.dev(),
            inode: found.ino(),
            len: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether both are of one file, whose name may have changed.
    fn is_same_file(&self, other: &Version) -> bool {
        let file = |it: &Version| (it.device, it.inode, it.len);
        file(self) == file(other)
    }
}

/// Far more than one push uploads before the first narinfo. They need about 4 MiB.
const COUNT_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use floe_format::{Compression, Hash};

    use super::*;

    fn facts(byte: u8) -> NarFile {
        NarFile {
            compression: Compression::Zstd,
            nar_hash: Hash::sha256([byte; 32]),
            nar_size: 96,
            file_hash: Hash::sha256([byte; 32]),
            file_size: 4,
        }
    }

    /// Remembers facts about the file at a place.
    fn insert(files: &KnownFiles, name: &str, place: &Path, byte: u8) {
        files.insert(name, place, (Version::at(place).unwrap(), facts(byte)));
    }

    #[test]
    fn changed_file_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("file");
        let files = KnownFiles::default();
        std::fs::write(&place, "text").unwrap();
        assert_eq!(files.get("file", &place), None);
        insert(&files, "file", &place, 1);
        assert_eq!(files.get("file", &place), Some(facts(1)));
        assert_eq!(files.get("other", &place), None);
        // Another file with the same contents.
        let new = directory.path().join("new");
        std::fs::write(&new, "text").unwrap();
        let old = Version::at(&place).unwrap();
        std::fs::rename(&new, &place).unwrap();
        assert_eq!(files.get("file", &place), None);
        files.insert("file", &place, (old, facts(2)));
        assert_eq!(files.get("file", &place), None);
        insert(&files, "file", &place, 2);
        assert_eq!(files.get("file", &place), Some(facts(2)));
        std::fs::write(&place, "longer text").unwrap();
        assert_eq!(files.get("file", &place), None);
        let old = Version::at(&place).unwrap();
        std::fs::remove_file(&place).unwrap();
        files.insert("file", &place, (old, facts(2)));
        assert_eq!(files.get("file", &place), None);
    }

    #[test]
    fn number_of_facts_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        let files = KnownFiles::default();
        for number in 0..=COUNT_MAX {
            insert(&files, &number.to_string(), directory.path(), 1);
        }
        assert!(files.0.lock().len() <= COUNT_MAX);
        let last = files.get(&COUNT_MAX.to_string(), directory.path());
        assert!(last.is_some());
    }
}
