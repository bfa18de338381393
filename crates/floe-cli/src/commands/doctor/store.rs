//! The check of a store and of its file system.

use std::fs;
use std::path::Path;

use floe_format::StorePath;
use floe_store::tree::{Ability, probe_file_system};
use floe_store::{
    DamagedRow, FileSystem, LockWait, StoreError, StoreHealth, StoreLayout, StoreReader,
    recorded_damage,
};
use floe_transfer::Size;

use super::findings::{Findings, Part};
use crate::messages::counted;

/// Checks a local store. Returns some of its paths, as a sample.
pub(super) fn check(
    layout: &StoreLayout,
    lock_wait: &LockWait,
    findings: &mut Findings,
) -> Vec<StorePath> {
    let place = layout.real_store_dir.display();
    let has_files = layout.real_store_dir.is_dir();
    let store = match StoreReader::open_with(layout.clone(), lock_wait.clone()) {
        Ok(store) => store,
        Err(StoreError::NoStore { .. }) if layout.real_store_dir.symlink_metadata().is_err() => {
            findings.fine(
                Part::Store,
                format!("{place} does not exist yet; floe install makes it"),
            );
            check_space(&layout.real_store_dir, findings);
            return Vec::new();
        }
        Err(error) => {
            report(error, findings);
            check_file_system(layout, findings);
            return Vec::new();
        }
    };
    if !has_files {
        findings.problem(
            Part::Store,
            format!("{place} is no directory, but its database exists"),
            "mount its file system, or try floe verify --repair",
        );
    }
    match store.health() {
        Ok(health) => check_health(layout, &health, findings),
        Err(error) => report(error, findings),
    }
    check_damage(layout, findings);
    check_file_system(layout, findings);
    let mut sample = store.valid_paths().unwrap_or_default();
    sample.truncate(SAMPLE_LEN);
    sample
}

/// Reports why the database cannot be read.
fn report(error: StoreError, findings: &mut Findings) {
    match error {
        StoreError::Interrupted => findings.problem(
            Part::Store,
            "another process has locked the database for too long",
            "wait for its end, or end it",
        ),
        error => findings.problem(Part::Store, error, ""),
    }
}

fn check_health(layout: &StoreLayout, health: &StoreHealth, findings: &mut Findings) {
    let part = Part::Store;
    let (store, space) = (layout.real_store_dir.display(), health.space);
    findings.fine(
        part,
        format!(
            "{store} has {}, and a database of {} with schema 10 and the journal {}",
            counted(health.paths, "path"),
            Size(space.bytes),
            health.journal_mode
        ),
    );
    for defect in &health.defects {
        let database = layout.database_dir().join("db.sqlite");
        findings.problem(
            part,
            format!("{}: {defect}", database.display()),
            "floe rebuild-db makes a new database from the paths on disk",
        );
    }
    if let Some(rows) = DamagedRow::describe(&health.damaged_rows) {
        findings.problem(part, rows, "try floe verify --repair");
    }
    if space.is_sparse() {
        findings.warn(
            part,
            format!("{} of the database are unused", Size(space.unused_bytes)),
            "floe gc --vacuum makes it small",
        );
    }
    if health.is_collecting {
        let message = "a garbage collection is running, for which other programs wait";
        findings.warn(part, message, "wait for its end");
    }
    let link = layout.real_store_dir.ancestors().find(|it| it.is_symlink());
    if let Some(link) = link {
        findings.warn(
            part,
            format!("{} is a symbolic link, which Nix refuses", link.display()),
            "use the path that it points to, or set allow-symlinked-store",
        );
    }
}

/// Looks for paths that are known to be damaged.
fn check_damage(layout: &StoreLayout, findings: &mut Findings) {
    match recorded_damage(layout) {
        Ok(Some(damaged)) if damaged.is_empty() => {}
        Ok(Some(damaged)) => findings.problem(
            Part::Store,
            format!(
                "the contents of {} are damaged, as of {}",
                counted(damaged.len(), "path"),
                damaged.first().map(ToString::to_string).unwrap_or_default()
            ),
            "floe verify --repair fetches them again",
        ),
        Ok(None) => findings.warn(
            Part::Store,
            "the record of paths that reached the disk is damaged, so that the next install \
             hashes all paths",
            "floe verify finds damaged paths",
        ),
        Err(error) => findings.warn(Part::Store, error, ""),
    }
}

/// Checks the file systems of the files and of the database.
fn check_file_system(layout: &StoreLayout, findings: &mut Findings) {
    check_space(&layout.real_store_dir, findings);
    let mount_point = |path: &Path| FileSystem::of(path).ok().map(|found| found.mount_point);
    if mount_point(&layout.real_store_dir) != mount_point(&layout.state_dir) {
        check_space(&layout.state_dir, findings);
    }
    probe(&layout.real_store_dir, findings);
}

fn check_space(directory: &Path, findings: &mut Findings) {
    let part = Part::FileSystem;
    let found = match FileSystem::of(directory) {
        Ok(found) => found,
        Err(error) => return findings.warn(part, error, ""),
    };
    let place = found.mount_point.display();
    let kind = found.kind.unwrap_or("unknown kind");
    let bytes = found.free_bytes.map(|bytes| Size(bytes).to_string());
    let inodes = found.free_inodes.map(|inodes| counted(inodes, "inode"));
    let free: Vec<String> = bytes.into_iter().chain(inodes).collect();
    let free = if free.is_empty() {
        "unknown space".into()
    } else {
        free.join(" and ")
    };
    findings.fine(part, format!("{place} ({kind}) has {free} free"));
    let remedy = "floe gc deletes unused paths";
    match found.free_bytes {
        Some(free) if free < FULL_BYTES => {
            findings.problem(part, format!("{place} is full"), remedy);
        }
        Some(free) if free < FREE_BYTES_MIN => {
            findings.warn(part, format!("{place} is almost full"), remedy);
        }
        _ => {}
    }
    if found.free_inodes.is_some_and(|free| free < FREE_INODES_MIN) {
        findings.warn(part, format!("{place} has almost no inodes left"), remedy);
    }
}

/// Tries what the file system of a store can do.
fn probe(store: &Path, findings: &mut Findings) {
    let part = Part::FileSystem;
    // Nothing is tried in a directory that is no store.
    if !store.is_dir() {
        return;
    }
    let directory = store;
    let abilities = match probe_file_system(directory) {
        Ok(abilities) => abilities,
        Err(error) => {
            let remedy = "run it as a user who may write the store to check the file system";
            return findings.warn(part, error, remedy);
        }
    };
    let mut lacks = 0;
    for (ability, tried) in &abilities {
        let Err(reason) = tried else { continue };
        lacks += 1;
        let (what, effect, is_problem) = describe(*ability);
        let message = format!("{}: {what}: {reason}", directory.display());
        if is_problem {
            findings.problem(part, message, effect);
        } else {
            findings.warn(part, message, effect);
        }
    }
    if lacks == 0 {
        let count = abilities.len();
        let directory = directory.display();
        findings.fine(
            part,
            format!("{directory} keeps all {count} properties of a store"),
        );
    }
    if fs::symlink_metadata(store).is_ok_and(|found| found.permissions().readonly()) {
        let message = format!("{} is read-only", store.display());
        findings.warn(part, message, "floe mounts it writable where it may");
    }
}

/// Returns what an ability is, what its absence means for the user, and whether a store cannot be
/// without it.
fn describe(ability: Ability) -> (&'static str, &'static str, bool) {
    const MOVE: &str = "put the store on another file system";
    match ability {
        Ability::Locks => (
            "locks of files",
            "two programs can damage the store; use one at a time, or another file system",
            true,
        ),
        Ability::RangeLocks => (
            "locks of the database",
            "SQLite can damage the database; put the store on another file system",
            true,
        ),
        Ability::ExchangingRename => ("exchanging renames", "a repair needs two steps", false),
        Ability::ExclusiveRename => (
            "renames that replace nothing",
            "floe looks before it renames",
            false,
        ),
        Ability::HardLinks => ("hard links", "floe optimise cannot save space", false),
        Ability::Symlinks => ("symbolic links", MOVE, true),
        Ability::Modes => ("modes of files", MOVE, true),
        Ability::Times => ("times of files", MOVE, true),
        Ability::CaseSensitiveNames => (
            "names in upper and lower case",
            "paths with such names cannot be installed; put the store on another file system",
            false,
        ),
        Ability::ExactNames => (
            "names with accents",
            "paths with such names cannot be installed; put the store on another file system",
            false,
        ),
        Ability::LongNames => (
            "long names",
            "paths with such names cannot be installed; put the store on another file system",
            false,
        ),
        Ability::NoInheritedAcls => (
            "access control lists",
            "remove the default list with setfacl -k; Nix refuses files with such lists",
            false,
        ),
        Ability::Execution => ("programs", "mount it with the option exec", true),
        Ability::Clock => (
            "the clock",
            "set the clocks of this machine and of the file server",
            false,
        ),
    }
}

/// The paths for which caches are asked.
const SAMPLE_LEN: usize = 100;

/// The free space with which nothing can be written, in bytes.
const FULL_BYTES: u64 = 1024 * 1024;

/// The free space below which installs are about to fail, in bytes.
const FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// The free inodes below which installs are about to fail.
const FREE_INODES_MIN: u64 = 20_000;
