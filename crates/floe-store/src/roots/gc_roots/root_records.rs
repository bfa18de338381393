//! The records of roots and of the mounts that they are on.
//!
//! A link in `gcroots` names the place of a root. While the file system of this place is not
//! mounted, or another one hides it, the link points to nothing, and Nix's collectors delete it
//! with the closure of the root. A collection of floe and the registration of a root therefore
//! record for each root its path and the mount point of its file system. The records are files in a
//! directory beside the database, named as the registrations in `gcroots/auto`. Only the owner of
//! the store can change them.
//!
//! Not guaranteed: that the record names the new path of a root that another program has changed
//! since the last collection of floe; and that a root is kept while another file system is mounted
//! at the mount point.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use floe_format::StorePath;

use super::auto_root_name;
use crate::disk::mount_table::{escape, unescape};
use crate::disk::{Directory, StoreLayout};
use crate::error::{IoContext as _, StoreError};

/// The record of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RootRecord {
    /// Where the file system of the root was mounted.
    pub(super) mount_point: PathBuf,
    /// The place of the root.
    pub(super) place: PathBuf,
    /// The path that the root keeps.
    pub(super) path: StorePath,
}

impl RootRecord {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = b"mount-point ".to_vec();
        bytes.extend(escape(&self.mount_point));
        bytes.extend(b"\nplace ");
        bytes.extend(escape(&self.place));
        bytes.extend(format!("\npath {}\n{END}", self.path).bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<RootRecord> {
        let lines = bytes.strip_suffix(END.as_bytes())?.strip_suffix(b"\n")?;
        let mut lines = lines.split(|byte| *byte == b'\n');
        let mut value = |name: &str| {
            let line = lines.next()?.strip_prefix(name.as_bytes())?;
            unescape(line.strip_prefix(b" ")?)
        };
        let record = RootRecord {
            mount_point: OsString::from_vec(value("mount-point")?).into(),
            place: OsString::from_vec(value("place")?).into(),
            path: StorePath::parse(str::from_utf8(&value("path")?).ok()?).ok()?,
        };
        lines.next().is_none().then_some(record)
    }
}

/// The open directory of the records.
pub(super) struct RootRecords(Directory);

impl RootRecords {
    /// Opens the directory. Returns `None` if it does not exist.
    ///
    /// Errors: [`StoreError::ForeignLink`], and those of the system.
    pub(super) fn open(layout: &StoreLayout) -> Result<Option<RootRecords>, StoreError> {
        let database = Directory::open(&layout.database_dir())?;
        match database.subdirectory(OsStr::new(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => {
                let opened = opened.io_context("open", database.path().join(NAME))?;
                Ok(Some(RootRecords(opened)))
            }
        }
    }

    /// Opens the directory, and creates it if it does not exist.
    ///
    /// Errors: those of [`RootRecords::open`].
    pub(super) fn open_or_create(layout: &StoreLayout) -> Result<RootRecords, StoreError> {
        let database = Directory::open(&layout.database_dir())?;
        let name = OsStr::new(NAME);
        let created = database.create_subdirectory(name);
        let opened = created.and_then(|_| database.subdirectory(name));
        Ok(RootRecords(
            opened.io_context("open", database.path().join(NAME))?,
        ))
    }

    /// The names of all records, and of files that a killed process left.
    ///
    /// Errors: those of the system.
    pub(super) fn names(&self) -> Result<Vec<OsString>, StoreError> {
        let listed = self.0.list().io_context("list", self.0.path())?;
        Ok(listed.into_iter().map(|(name, _)| name).collect())
    }

    /// Reads the record of a root.
    ///
    /// Errors: those of the system, and one for a file that does not parse or is not a regular
    /// file.
    pub(super) fn read(&self, place: &Path) -> Result<Option<RootRecord>, StoreError> {
        let name = auto_root_name(place);
        let entry = self.0.entry(&name);
        let mut bytes = Vec::new();
        let read = entry.open_to_read().and_then(|file| {
            let mut file = file.take(LEN_MAX.saturating_add(1));
            file.read_to_end(&mut bytes)
        });
        let damaged = || {
            let text = format!(
                "it is damaged; try to mount the file system of the root {}, or remove the record \
                 if the root is gone for good",
                place.display()
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        };
        let record = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(error),
            _ => match RootRecord::parse(&bytes) {
                Some(record) if record.place == place => Ok(Some(record)),
                _ => damaged(),
            },
        };
        record.io_context("read the record of a root", entry.path())
    }

    /// Writes a record, unless it is there. Replaces a damaged one.
    ///
    /// Errors: those of the system.
    pub(super) fn write(&self, record: &RootRecord) -> Result<(), StoreError> {
        if self
            .read(&record.place)
            .is_ok_and(|read| read.as_ref() == Some(record))
        {
            return Ok(());
        }
        let name = auto_root_name(&record.place);
        let entry = self.0.entry(&name);
        let written = entry.replace_file(&record.to_bytes());
        written.io_context("write", entry.path())
    }

    /// Removes the record of this name, if there is one.
    ///
    /// Errors: those of the system.
    pub(super) fn remove(&self, name: &OsStr) -> Result<(), StoreError> {
        let entry = self.0.entry(name);
        match entry.remove() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).io_context("remove", entry.path())
            }
            _ => Ok(()),
        }
    }
}

/// The directory of the records, beside the database.
const NAME: &str = "floe-roots";

/// The last line. A record that was cut off lacks it.
const END: &str = "end\n";

/// Two paths of the system have at most 4096 bytes each, which escapes make four times as long.
const LEN_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use floe_format::StoreDir;
    use proptest::prelude::*;

    use super::*;

    fn store_path(name: &str) -> StorePath {
        StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap()
    }

    fn place() -> impl Strategy<Value = PathBuf> {
        // Each byte but NUL.
        let bytes = prop::collection::vec(1_u8.., 0..40);
        bytes.prop_map(|bytes| OsString::from_vec(bytes).into())
    }

    proptest! {
        #[test]
        fn parse_reverses_print(
            mount_point in place(),
            place in place(),
            name in "[a-zA-Z0-9+_?=-]{1,20}",
        ) {
            let record = RootRecord { mount_point, place, path: store_path(&name) };
            let bytes = record.to_bytes();
            prop_assert_eq!(RootRecord::parse(&bytes), Some(record));
            for len in 0..bytes.len() {
                prop_assert_eq!(RootRecord::parse(&bytes[..len]), None);
            }
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            RootRecord::parse(&bytes);
        }
    }

    #[test]
    fn damaged_record_is_an_error_and_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        assert!(RootRecords::open(&layout).unwrap().is_none());
        let records = RootRecords::open_or_create(&layout).unwrap();
        let record = RootRecord {
            mount_point: "/mnt".into(),
            place: "/mnt/result".into(),
            path: store_path("a"),
        };
        let directory = layout.database_dir().join(NAME);
        let file = directory.join(auto_root_name(&record.place));
        let outside = root.path().join("outside");
        let long = "x".repeat(1 << 17);
        let of_other = RootRecord {
            place: "/mnt/other".into(),
            ..record.clone()
        };
        fs::write(&outside, record.to_bytes()).unwrap();
        let obstacles: [&dyn Fn(); 6] = [
            &|| fs::write(&file, "").unwrap(),
            &|| fs::write(&file, "end\n").unwrap(),
            &|| fs::write(&file, &long).unwrap(),
            &|| fs::write(&file, of_other.to_bytes()).unwrap(),
            &|| symlink(&outside, &file).unwrap(),
            &|| rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap(),
        ];
        for (number, make) in obstacles.iter().enumerate() {
            make();
            let error = records.read(&record.place).unwrap_err().to_string();
            assert!(error.contains("is damaged"), "{number}: {error}");
            records.write(&record).unwrap();
            let read = records.read(&record.place).unwrap();
            assert_eq!(read.as_ref(), Some(&record), "{number}");
            assert!(fs::symlink_metadata(&file).unwrap().is_file(), "{number}");
            records.remove(&auto_root_name(&record.place)).unwrap();
            assert_eq!(records.names().unwrap().len(), 0, "{number}");
        }
        assert_eq!(fs::read(&outside).unwrap(), record.to_bytes());
    }

    #[test]
    fn symbolic_link_in_place_of_the_directory_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        symlink(root.path(), layout.database_dir().join(NAME)).unwrap();
        assert!(RootRecords::open(&layout).is_err());
        assert!(RootRecords::open_or_create(&layout).is_err());
    }
}
