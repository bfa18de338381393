//! Archives that have the same bytes for the same files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// The contents of an archive: files and directories by their relative paths.
#[derive(Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, Entry>,
}

enum Entry {
    /// A directory: its mode, and the id of its user and group.
    Directory(u32, u64),
    /// A file: its mode and its contents.
    File(u32, Vec<u8>),
}

impl Archive {
    /// Adds a file, and the directories above it.
    pub(super) fn file(&mut self, path: &str, mode: u32, contents: impl Into<Vec<u8>>) {
        for (end, _) in path.match_indices('/') {
            let parent = path[..end].to_owned();
            let directory = Entry::Directory(0o755, 0);
            self.entries.entry(parent).or_insert(directory);
        }
        let file = Entry::File(mode, contents.into());
        self.entries.insert(path.to_owned(), file);
    }

    /// Adds an empty directory, whose parents must exist or get files, with the id of its user and
    /// group.
    pub(super) fn directory(&mut self, path: &str, mode: u32, owner: u64) {
        let directory = Entry::Directory(mode, owner);
        self.entries.insert(path.to_owned(), directory);
    }

    /// Adds a file of the file system.
    pub(super) fn copy(&mut self, path: &str, mode: u32, from: &Path) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.file(path, mode, contents);
        Ok(())
    }

    /// The uncompressed archive in the ustar format. All files belong to root, and all entries have
    /// the same time, in seconds since 1970.
    pub(super) fn tar(&self, time: u64) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let (kind, mode, owner, contents): (_, _, _, &[u8]) = match entry {
                Entry::Directory(mode, owner) => (EntryType::Directory, *mode, *owner, &[]),
                Entry::File(mode, contents) => (EntryType::Regular, *mode, 0, contents),
            };
            let mut header = Header::new_ustar();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(owner);
            header.set_gid(owner);
            header.set_mtime(time);
            header.set_size(contents.len() as u64);
            tar.append_data(&mut header, path, contents)
                .with_context(|| format!("cannot archive {path}"))?;
        }
        tar.into_inner().context("cannot end the archive")
    }
}

/// Compresses bytes. The result contains no time and no name.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    gzip.write_all(bytes).context("cannot compress")?;
    gzip.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_first_and_order_of_additions_does_not_matter() {
        let mut one = Archive::default();
        one.file("floe/bin/floe", 0o755, "program");
        one.file("floe/README", 0o644, "text");
        let mut other = Archive::default();
        other.file("floe/README", 0o644, "text");
        other.file("floe/bin/floe", 0o755, "program");
        let (one, other) = (one.tar(7).unwrap(), other.tar(7).unwrap());
        assert!(one == other);
        let mut read = tar::Archive::new(&*one);
        let entries = read.entries().unwrap().map(Result::unwrap);
        let seen: Vec<(String, u32, u64)> = entries
            .map(|entry| {
                let header = entry.header();
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.mtime().unwrap())
            })
            .collect();
        let expected = [
            ("floe", 0o755),
            ("floe/README", 0o644),
            ("floe/bin", 0o755),
            ("floe/bin/floe", 0o755),
        ];
        assert_eq!(
            seen,
            expected.map(|(path, mode)| (path.to_owned(), mode, 7))
        );
    }

    #[test]
    fn gzip_is_the_same_at_any_time() {
        let bytes = gzip(b"some bytes").unwrap();
        // RFC 1952: bytes 4 to 7 are the time, and flag 8 of byte 3 announces a name.
        assert_eq!((&bytes[4..8], bytes[3]), (&[0; 4][..], 0));
    }
}
