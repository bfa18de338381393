//! The check after a restart of the system: finds valid paths whose files did not reach the disk.
//!
//! `sync_record` describes the record that this check reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::{fs, io};

use floe_format::StorePath;
use rustix::fs::syncfs;

use super::sync_record::{SyncRecord, boot_id, had_record, lock_record};
use crate::db::Database;
use crate::disk::StoreLayout;
use crate::error::{IoContext as _, StoreError};
use crate::events::{LostRecord, StoreEvent, StoreEvents};
use crate::locks::LockWait;
use crate::open_store::WritableStore;
use crate::progress::Progress;
use crate::query::{Damage, StoreReader};

/// The valid paths with damaged contents.
type DamagedPaths = BTreeMap<StorePath, Damage>;

/// The state of the record at the start of a writer.
enum RecordState {
    /// The running system wrote it, so the page cache has the files of all later rows.
    OfThisBoot(SyncRecord),
    /// Later rows are suspect.
    OfOtherBoot(SyncRecord),
    /// There is none, or it belongs to another database. Its damaged paths are still suspect.
    Absent {
        damaged: BTreeSet<StorePath>,
        reason: Option<LostRecord>,
    },
}

impl RecordState {
    fn read(layout: &StoreLayout, last_row: i64) -> Result<RecordState, StoreError> {
        let absent = |damaged, reason| Ok(RecordState::Absent { damaged, reason });
        let Some(record) = SyncRecord::read(layout)? else {
            let is_lost = had_record(layout) && last_row > 0;
            return absent(BTreeSet::new(), is_lost.then_some(LostRecord::Deleted));
        };
        if record.synced_row > last_row {
            return absent(record.damaged, Some(LostRecord::BeyondDatabase));
        }
        Ok(match boot_id() {
            Some(id) if id == record.boot_id => RecordState::OfThisBoot(record),
            _ => RecordState::OfOtherBoot(record),
        })
    }

    /// Returns the valid paths whose contents may be damaged.
    fn suspects(&self, database: &Database) -> Result<BTreeSet<StorePath>, StoreError> {
        Ok(match self {
            RecordState::OfThisBoot(record) => record.damaged.clone(),
            RecordState::Absent { damaged, .. } => damaged.clone(),
            RecordState::OfOtherBoot(record) => {
                let mut suspects = record.damaged.clone();
                suspects.extend(database.paths_after_row(record.synced_row)?);
                suspects
            }
        })
    }
}

/// The findings when a writer opens a store.
pub(super) struct RestartCheck {
    /// The valid paths that an earlier crash of the system has damaged.
    pub(super) damaged: DamagedPaths,
    /// Whether this is the first writer after a restart of the system.
    pub(super) is_first: bool,
    /// The thread that waits for the disk.
    pub(super) background_sync: Option<JoinHandle<()>>,
}

/// Writes the record, so that the next writer notices a crash of the system after this call. Finds
/// the paths with damage by an earlier crash.
///
/// Errors: those of the system and of the database, and [`StoreError::Interrupted`].
pub(super) fn check_after_restart(
    store: &WritableStore,
    events: &StoreEvents,
) -> Result<RestartCheck, StoreError> {
    let last_row = store.database().last_row()?;
    let state = RecordState::read(&store.layout, last_row)?;
    let suspects = state.suspects(&store.database())?;
    let is_first = matches!(state, RecordState::OfOtherBoot(_));
    if is_first && !suspects.is_empty() {
        let paths = suspects.len();
        events.send(StoreEvent::CheckingPaths { paths });
    }
    let damaged = find_damaged(store, &suspects)?;
    let synced_row = match state {
        RecordState::OfThisBoot(record) => record.synced_row,
        RecordState::OfOtherBoot(record) => write_checked(store, record, &suspects, &damaged)?,
        RecordState::Absent { reason, .. } => write_first(store, &damaged, last_row, || {
            if let Some(reason) = reason {
                events.send(StoreEvent::LostSyncRecord { reason });
            }
        })?,
    };
    let is_behind = synced_row < last_row && boot_id().is_some();
    let begin_sync = || sync_in_background(store, last_row);
    Ok(RestartCheck {
        damaged,
        is_first,
        background_sync: is_behind.then(begin_sync).flatten(),
    })
}

impl StoreReader {
    /// Returns the valid paths that a crash of the system has damaged, as the next writer will find
    /// them. Writes nothing.
    ///
    /// Errors: those of the system and of the database, and [`StoreError::Interrupted`].
    pub fn query_damaged(
        &self,
        lock_wait: &LockWait,
    ) -> Result<BTreeMap<StorePath, Damage>, StoreError> {
        let last_row = self.database().last_row()?;
        let state = match RecordState::read(self.layout(), last_row) {
            // Only the owner of the store may know what is damaged.
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                return Ok(DamagedPaths::new());
            }
            state => state?,
        };
        let suspects = state.suspects(&self.database())?;
        self.find_damaged(&suspects, lock_wait)
    }

    fn find_damaged(
        &self,
        suspects: &BTreeSet<StorePath>,
        lock_wait: &LockWait,
    ) -> Result<DamagedPaths, StoreError> {
        if suspects.is_empty() {
            return Ok(DamagedPaths::new());
        }
        let suspects: Vec<StorePath> = suspects.iter().cloned().collect();
        let verification = self.verify(&suspects, None, &Cancellation(lock_wait))?;
        let damaged = verification.damaged_paths(&self.layout().store_dir);
        Ok(damaged.into_iter().collect())
    }
}

/// Hashes paths, and returns those that are valid and damaged.
fn find_damaged(
    store: &WritableStore,
    suspects: &BTreeSet<StorePath>,
) -> Result<DamagedPaths, StoreError> {
    if suspects.is_empty() {
        return Ok(DamagedPaths::new());
    }
    let reader = StoreReader::open_with(store.layout.clone(), store.lock_wait.clone())?;
    reader.find_damaged(suspects, &store.lock_wait)
}

/// Replaces the record of another boot. Keeps the synced row, because the checked files may
/// only be in the page cache. Returns the synced row.
fn write_checked(
    store: &WritableStore,
    record: SyncRecord,
    suspects: &BTreeSet<StorePath>,
    damaged: &DamagedPaths,
) -> Result<i64, StoreError> {
    let layout = &store.layout;
    let _lock = lock_record(layout, &store.lock_wait)?;
    // Another process may have checked the same paths meanwhile, and may have recorded others.
    let mut record = SyncRecord::read(layout)?.unwrap_or(record);
    record.damaged.retain(|path| !suspects.contains(path));
    record.damaged.extend(damaged.keys().cloned());
    record.boot_id = boot_id().unwrap_or_default();
    record.write(layout)?;
    Ok(record.synced_row)
}

/// Writes the record of a store that has none, unless another process was faster. Calls
/// `report_loss` before. Returns the synced row.
fn write_first(
    store: &WritableStore,
    damaged: &DamagedPaths,
    last_row: i64,
    report_loss: impl FnOnce(),
) -> Result<i64, StoreError> {
    let layout = &store.layout;
    let boot_id = boot_id().unwrap_or_default();
    let _lock = lock_record(layout, &store.lock_wait)?;
    if let Some(found) = SyncRecord::read(layout)?
        && found.boot_id == boot_id
        && found.synced_row <= last_row
    {
        return Ok(found.synced_row);
    }
    report_loss();
    let record = SyncRecord {
        boot_id,
        synced_row: 0,
        damaged: damaged.keys().cloned().collect(),
    };
    record.write(layout)?;
    Ok(record.synced_row)
}

/// Waits on another thread until the files of all rows up to `row` are on disk, and records it.
/// If that fails, a later writer tries again.
fn sync_in_background(store: &WritableStore, row: i64) -> Option<JoinHandle<()>> {
    let (directory, layout) = (store.directory.clone(), store.layout.clone());
    let thread = thread::Builder::new().name("floe-sync".into());
    // Without the thread, the record stays as it is.
    let spawned = thread.spawn(move || _ = sync_and_record(&directory, &layout, row));
    spawned.ok()
}

/// If the boot id is not readable, no later process trusts the rows of this one. So their files
/// must be on disk before this process ends.
pub(super) fn sync_without_boot_id(store: &WritableStore) -> Result<(), StoreError> {
    if boot_id().is_some() {
        return Ok(());
    }
    let last_row = store.database().last_row()?;
    sync_and_record(&store.directory, &store.layout, last_row)
}

/// Waits until the files of all rows up to `row` are on disk, and advances the record of the
/// running system.
fn sync_and_record(directory: &OwnedFd, layout: &StoreLayout, row: i64) -> Result<(), StoreError> {
    syncfs(directory).io_context("sync", &layout.real_store_dir)?;
    // A row that the record names and the database loses would be used again for another path.
    let database = layout.database_dir();
    if device(&database)? != device(&layout.real_store_dir)? {
        let directory = fs::File::open(&database).io_context("open", &database)?;
        syncfs(&directory).io_context("sync", &database)?;
    }
    let _lock = lock_record(layout, &LockWait::default())?;
    if let Some(mut record) = SyncRecord::read(layout)?
        && record.boot_id == boot_id().unwrap_or_default()
        && record.synced_row < row
    {
        record.synced_row = row;
        record.write(layout)?;
    }
    Ok(())
}

fn device(path: &Path) -> Result<u64, StoreError> {
    let metadata: io::Result<fs::Metadata> = fs::metadata(path);
    Ok(metadata.io_context("examine", path)?.dev())
}

/// Ends a verification at an interrupt.
struct Cancellation<'a>(&'a LockWait);

impl Progress for Cancellation<'_> {
    fn should_continue(&self) -> bool {
        self.0.check_cancelled().is_ok()
    }
}
