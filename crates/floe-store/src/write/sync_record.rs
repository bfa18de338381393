//! The record of paths whose files may not have reached the disk.
//!
//! Rows of the database and files of the store reach the disk in no fixed order. After a power cut,
//! a row may be there while the files of its path are empty. To wait for the disk after each copy
//! would take seconds. Instead a file in the state directory names the running system by its boot
//! id, and the last row whose files are on disk, the *synced row*:
//!
//! 1. The first writer after a boot makes the record durable before it registers a path.
//! 2. The synced row advances only after a completed `syncfs`, to the row that was the last one
//!    before this `syncfs` began. A hash proves nothing: it may come from the page cache.
//! 3. A writer that finds a record of another boot hashes all paths with later rows. The record
//!    then lists the damaged ones by name, until a copy has replaced them.
//! 4. A store without a record is not hashed, because it may be huge. Its record begins with row 0.
//!
//! Row numbers are never used again (`autoincrement`). Rows of other programs count as well.
//!
//! Not guaranteed: that other programs, such as Nix, know which paths are damaged; and that floe
//! notices damage that is older than the record.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use floe_format::StorePath;
use rustix::fs::{FlockOperation, Mode};

use crate::disk::{StoreLayout, WrittenFile, open_regular_file};
use crate::error::{IoContext as _, StoreError, is_not_found};
use crate::locks::{LockWait, open_lock_file, try_lock};

/// The contents of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncRecord {
    /// The boot id of the system that wrote the record; empty if it had none.
    pub(crate) boot_id: String,
    /// The last row whose files are known to be on disk.
    pub(crate) synced_row: i64,
    /// Valid paths with wrong or missing contents.
    pub(crate) damaged: BTreeSet<StorePath>,
}

impl SyncRecord {
    /// Reads the record. Returns `None` if there is none. A record that does not parse, or is no
    /// regular file, distrusts all rows.
    ///
    /// Errors: those of the system.
    pub(crate) fn read(layout: &StoreLayout) -> Result<Option<SyncRecord>, StoreError> {
        let file = record_file(layout);
        let read = || -> io::Result<String> {
            let mut text = String::new();
            open_regular_file(&file)?.read_to_string(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) => Ok(Some(SyncRecord::parse(&text).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Ok(Some(SyncRecord::default()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).io_context("read", &file),
        }
    }

    /// Replaces the record. It is durable when the function returns. The caller must hold the lock
    /// of the record.
    ///
    /// Errors: those of the system.
    pub(crate) fn write(&self, layout: &StoreLayout) -> Result<(), StoreError> {
        let file = record_file(layout);
        // The lock of the record allows one writer, so a killed one leaves at most this file.
        let temporary = file.with_extension("tmp");
        let write = || {
            let removed = fs::remove_file(&temporary);
            if !is_not_found(&removed) {
                removed?;
            }
            let new = WrittenFile::create(&temporary, Mode::from_raw_mode(0o644))?;
            new.complete(|new| {
                // A dry run of another user reads the record, whatever the umask.
                new.set_mode(0o644)?;
                new.write_all(self.to_text().as_bytes())?;
                new.as_file().sync_all()
            })?;
            fs::rename(&temporary, &file)?;
            File::open(layout.database_dir())?.sync_all()
        };
        let written = write();
        if written.is_err() {
            // After a failure, the next writer removes the file.
            let _: io::Result<()> = fs::remove_file(&temporary);
        }
        written.io_context("write", &file)
    }

    fn to_text(&self) -> String {
        let mut text = format!("boot {}\nsynced-row {}\n", self.boot_id, self.synced_row);
        for path in &self.damaged {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "damaged {path}");
        }
        text + END
    }

    fn parse(text: &str) -> Option<SyncRecord> {
        let mut record = SyncRecord::default();
        for line in text.strip_suffix(END)?.lines() {
            let (name, value) = line.split_once(' ')?;
            match name {
                "boot" => record.boot_id = value.into(),
                "synced-row" => record.synced_row = value.parse().ok()?,
                "damaged" => _ = record.damaged.insert(StorePath::parse(value).ok()?),
                _ => return None,
            }
        }
        Some(record)
    }
}

/// Returns the valid paths that floe knows to be damaged; `None` if the record of them does not
/// parse.
///
/// Errors: those of the system.
pub fn recorded_damage(layout: &StoreLayout) -> Result<Option<BTreeSet<StorePath>>, StoreError> {
    Ok(match SyncRecord::read(layout)? {
        Some(record) if record == SyncRecord::default() => None,
        record => Some(record.unwrap_or_default().damaged),
    })
}

/// Whether floe has written a record before: its lock is never removed.
pub(crate) fn had_record(layout: &StoreLayout) -> bool {
    lock_file(layout).exists()
}

/// Keeps other processes of floe from changing the record. Dropping it releases the lock.
pub(crate) fn lock_record(layout: &StoreLayout, lock_wait: &LockWait) -> Result<File, StoreError> {
    let path = lock_file(layout);
    let file = open_lock_file(&path)?;
    lock_wait.wait("another floe", &path, || {
        let operation = FlockOperation::NonBlockingLockExclusive;
        Ok(try_lock(&file, &path, operation)?.then_some(()))
    })?;
    Ok(file)
}

/// Returns the boot id of the running system; `None` if it is not readable. Then no process trusts
/// the rows of another one, and each writer waits for the disk before it ends.
pub(crate) fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn record_file(layout: &StoreLayout) -> PathBuf {
    layout.database_dir().join("floe-sync-record")
}

fn lock_file(layout: &StoreLayout) -> PathBuf {
    record_file(layout).with_extension("lock")
}

/// The last line. A record that was cut off lacks it.
const END: &str = "end\n";

#[cfg(test)]
mod tests {
    use floe_format::StoreDir;
    use proptest::prelude::*;

    use super::*;

    fn path(number: u32) -> StorePath {
        StorePath::parse(&format!("{number:032}-a")).unwrap()
    }

    proptest! {
        #[test]
        fn parse_reverses_print(
            boot_id in "[0-9a-f-]{0,36}",
            synced_row: i64,
            damaged in prop::collection::btree_set(0_u32..9, 0..4),
        ) {
            let damaged = damaged.into_iter().map(path).collect();
            let record = SyncRecord { boot_id, synced_row, damaged };
            prop_assert_eq!(SyncRecord::parse(&record.to_text()), Some(record));
        }
    }

    #[test]
    fn named_pipe_in_the_place_of_the_record_distrusts_all_rows() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mkfifoat(rustix::fs::CWD, record_file(&layout), mode).unwrap();
        let found = SyncRecord::read(&layout).unwrap();
        assert_eq!(found, Some(SyncRecord::default()));
        SyncRecord::default().write(&layout).unwrap();
        assert!(fs::metadata(record_file(&layout)).unwrap().is_file());
    }

    #[test]
    fn record_that_is_cut_off_distrusts_all_rows() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.database_dir()).unwrap();
        assert_eq!(SyncRecord::read(&layout).unwrap(), None);
        let record = SyncRecord {
            boot_id: "id".into(),
            synced_row: 7,
            damaged: [path(1)].into(),
        };
        record.write(&layout).unwrap();
        assert_eq!(SyncRecord::read(&layout).unwrap(), Some(record.clone()));
        let text = record.to_text();
        for len in 0..text.len() {
            fs::write(record_file(&layout), &text[..len]).unwrap();
            let cut = SyncRecord::read(&layout).unwrap();
            assert_eq!(cut, Some(SyncRecord::default()), "{len}");
        }
    }
}
