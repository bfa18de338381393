//! Replaces the file of a damaged or missing database.
//!
//! 1. The new database is written in a directory beside the old one, and reaches the disk.
//! 2. The old file gets a second name. The files that SQLite keeps beside it are renamed likewise,
//!    because SQLite would apply them to the new file.
//! 3. The new file is renamed to the place of the old one.
//!
//! Until the last step, the store has its old database. The next rebuild removes what a killed one
//! has left.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::db::{Database, MissingTables, Registration, side_file, write_schema};
use crate::disk::{Directory, NewMode, StoreLayout, list_directory};
use crate::error::{IoContext as _, StoreError, is_not_found};
use crate::options::WriteOptions;
use crate::tree::remove_tree;
use crate::write::sync_record::{SyncRecord, boot_id, lock_record};

/// Writes a new database with these paths in the place of the old one. Returns the new name of the
/// old file, if there was one. The caller holds the big lock alone.
///
/// Errors: those of the system and of SQLite. The old database stays then.
pub(super) fn write(
    layout: &StoreLayout,
    options: &WriteOptions,
    all: &[Registration<'_>],
) -> Result<Option<PathBuf>, StoreError> {
    remove_unfinished(layout)?;
    let staging = layout.database_dir().join(STAGING);
    let staged = StoreLayout {
        state_dir: staging.clone(),
        ..layout.clone()
    };
    let written = write_staged(&staged, options, all);
    let replaced = written.and_then(|new| replace(layout, &new));
    // The first error is the one to report. The next rebuild removes the directory.
    let _: Result<(), StoreError> = remove_staging(&staging);
    let saved = replaced?;
    restart_sync_record(layout, options)?;
    Ok(saved)
}

/// Writes a database, which is on disk when the function returns. Returns its file.
fn write_staged(
    staged: &StoreLayout,
    options: &WriteOptions,
    all: &[Registration<'_>],
) -> Result<PathBuf, StoreError> {
    let directory = staged.database_dir();
    Directory::open_or_create(&directory, NewMode::Shared)?;
    let file = directory.join("db.sqlite");
    let database = Database::open_writable(staged, &options.database(MissingTables::Create))?;
    database.replace_all(all, &Default::default())?;
    if !database.truncate_log() {
        let busy = io::Error::other("its log cannot be applied");
        return Err(busy).io_context("complete", file);
    }
    drop(database);
    let new = File::open(&file).io_context("open", &file)?;
    new.sync_all().io_context("sync", &file)?;
    Ok(file)
}

/// Puts the new file in the place of the old one. Returns the new name of the old file.
fn replace(layout: &StoreLayout, new: &Path) -> Result<Option<PathBuf>, StoreError> {
    let directory = layout.database_dir();
    let file = directory.join("db.sqlite");
    let saved = save_old(&file)?;
    // Nix then makes its tables of realisations again (ca-specific-schema.sql).
    remove_if_exists(&directory.join("ca-schema"))?;
    fs::rename(new, &file).io_context("write", &file)?;
    write_schema(layout)?;
    let synced = File::open(&directory).and_then(|directory| directory.sync_all());
    synced.io_context("sync", &directory)?;
    Ok(saved)
}

/// Copies an intact database that is about to lose rows. Returns the copy.
///
/// Errors: those of the system and of SQLite.
pub(super) fn save_copy(layout: &StoreLayout, old: &Database) -> Result<PathBuf, StoreError> {
    let copy = next_name(&layout.database_dir())?;
    old.copy_to(&copy)?;
    Ok(copy)
}

/// Returns the databases that earlier rebuilds have saved, the newest first, at most
/// [`SAVED_MAX`].
///
/// Errors: those of the system.
pub(super) fn saved(layout: &StoreLayout) -> Result<Vec<PathBuf>, StoreError> {
    let directory = layout.database_dir();
    let numbers = saved_numbers(&directory)?.into_iter().rev();
    let names = numbers.map(|number| directory.join(saved_name(number)));
    Ok(names
        .filter(|name| name.is_file())
        .take(SAVED_MAX)
        .collect())
}

/// Returns a name after those of all saved databases.
fn next_name(directory: &Path) -> Result<PathBuf, StoreError> {
    let last = saved_numbers(directory)?.last().copied().unwrap_or(0);
    Ok(directory.join(saved_name(last.saturating_add(1))))
}

/// Returns the numbers of saved databases and of the files beside them.
fn saved_numbers(directory: &Path) -> Result<BTreeSet<u32>, StoreError> {
    let entries = list_directory(directory);
    if is_not_found(&entries) {
        return Ok(BTreeSet::new());
    }
    let mut numbers = BTreeSet::new();
    for entry in entries.io_context("list", directory)? {
        let entry = entry.io_context("list", directory)?;
        let number = entry.file_name().to_str();
        let number = number.and_then(|name| name.strip_prefix(SAVED));
        let number = number.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        numbers.extend(number);
    }
    Ok(numbers)
}

fn saved_name(number: u32) -> String {
    format!("{SAVED}{number}")
}

/// Gives the old file a second name, and renames the files beside it.
fn save_old(file: &Path) -> Result<Option<PathBuf>, StoreError> {
    let directory = file.parent().unwrap_or(file);
    let saved = next_name(directory)?;
    let linked = fs::hard_link(file, &saved);
    // Only files beside it may be left.
    let exists = !is_not_found(&linked);
    if exists {
        linked.io_context("save the old database as", &saved)?;
    }
    for suffix in SIDE_FILES {
        let renamed = fs::rename(side_file(file, suffix), side_file(&saved, suffix));
        if !is_not_found(&renamed) {
            renamed.io_context("rename a file beside", file)?;
        }
    }
    remove_if_exists(&side_file(file, "-shm"))?;
    Ok(exists.then_some(saved))
}

/// The record names rows of the old database. No row of the new one is known to be on disk.
fn restart_sync_record(layout: &StoreLayout, options: &WriteOptions) -> Result<(), StoreError> {
    let _lock = lock_record(layout, &options.lock_wait)?;
    let record = SyncRecord {
        boot_id: boot_id().unwrap_or_default(),
        ..SyncRecord::default()
    };
    record.write(layout)
}

/// Removes what a killed rebuild has left. The caller holds the big lock alone.
///
/// Errors: those of the system.
pub(super) fn remove_unfinished(layout: &StoreLayout) -> Result<(), StoreError> {
    remove_staging(&layout.database_dir().join(STAGING))
}

fn remove_staging(staging: &Path) -> Result<(), StoreError> {
    if is_not_found(&fs::symlink_metadata(staging)) {
        return Ok(());
    }
    remove_tree(staging)
}

fn remove_if_exists(file: &Path) -> Result<(), StoreError> {
    let removed = fs::remove_file(file);
    if is_not_found(&removed) {
        return Ok(());
    }
    removed.io_context("remove", file)
}

/// The beginning of the names of saved databases, before their numbers.
const SAVED: &str = "db.sqlite.old-";

/// Older databases than this many say little about a store.
const SAVED_MAX: usize = 8;

/// The directory of a database that is being written.
const STAGING: &str = "floe-rebuild";

/// The files beside a database that change it: the write-ahead log and the journal.
const SIDE_FILES: [&str; 2] = ["-wal", "-journal"];
