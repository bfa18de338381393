//! Makes the database of a store new from the trees on disk.
//!
//! 1. [`StoreRebuild::begin`] acquires the big lock alone, so that no other process has the store
//!    open for changes. It lists the trees, and reads the rows of the old database.
//! 2. [`StoreRebuild::for_each_tree`] lets the caller hash the trees on all cores. The caller
//!    decides which of them it trusts.
//! 3. [`StoreRebuild::check_derivation`] checks the paths of the outputs of a derivation.
//! 4. [`StoreRebuild::finish`] gives new trees the modes of store paths and writes the rows. An
//!    intact database gets them in one transaction. In the place of a damaged one comes a new file,
//!    and the old file stays under another name (`write/rebuild/database_file`).
//!
//! Roots, profiles and logs stay as they are. A killed rebuild leaves the old database.

mod database_file;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floe_format::{Derivation, PathInfo, StorePath};
use floe_hash::hash_pool::Worker;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;

use super::derivation_checks::DerivationChecks;
use crate::db::{
    BusyPolicy, Database, MissingTables, Registration, check_schema, find_users, write_schema,
};
use crate::disk::{Directory, StoreLayout, read_derivation};
use crate::error::{IoContext as _, StoreError};
use crate::events::StoreEvents;
use crate::locks::{open_lock_file, try_lock};
use crate::open_store::create_directories;
use crate::options::WriteOptions;
use crate::progress::{Progress, hash_all};
use crate::tree::canonicalise;

/// A store whose database is made new.
#[derive(Debug)]
pub struct StoreRebuild {
    layout: StoreLayout,
    options: WriteOptions,
    trees: Vec<StorePath>,
    rows: BTreeMap<StorePath, PathInfo>,
    old: OldDatabase,
    derivations: DerivationChecks,
    /// Held alone; `None` in a dry run.
    _big_lock: Option<File>,
}

/// The database that a store had.
#[derive(Debug)]
enum OldDatabase {
    Absent,
    Intact(Mutex<Database>),
    /// With the reason.
    Damaged(StoreError),
}

/// A new database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuiltDatabase {
    /// The number of paths that were valid and are no longer.
    pub removed: usize,
    /// The damaged file that the new one replaces, under its new name.
    pub saved: Option<PathBuf>,
}

impl StoreRebuild {
    /// Lists the trees of a store, and reads its old database. A dry run writes nothing.
    ///
    /// Errors: [`StoreError::NoTrees`] if there is nothing to register, [`StoreError::StoreInUse`],
    /// [`StoreError::Schema`], [`StoreError::Interrupted`], and those of the system.
    pub fn begin(
        layout: StoreLayout,
        options: WriteOptions,
        dry_run: bool,
    ) -> Result<StoreRebuild, StoreError> {
        // The rows are not lost, because they are about to be found again.
        let options = WriteOptions {
            events: StoreEvents::default(),
            ..options
        };
        let listed = list_trees(&layout)?;
        if listed.is_empty() && !layout.database_dir().join("db.sqlite").exists() {
            return Err(StoreError::NoTrees(layout.real_store_dir));
        }
        let lock = || lock_alone(&layout, &options);
        let big_lock = (!dry_run).then(lock).transpose()?;
        let scope = options.lock_wait.enter_scope();
        let (old, rows) = read_old(&layout, &options, dry_run)?;
        drop(scope);
        Ok(StoreRebuild {
            // Until the lock was acquired, a collector may have removed some.
            trees: list_trees(&layout)?,
            rows: rows
                .into_iter()
                .map(|info| (info.path.clone(), info))
                .collect(),
            layout,
            options,
            old,
            derivations: DerivationChecks::default(),
            _big_lock: big_lock,
        })
    }

    /// The directories of the store.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// The files and directories of the store that may be paths, sorted by name.
    pub fn trees(&self) -> &[StorePath] {
        &self.trees
    }

    /// The row of a path in the old database. See [`StoreRebuild::damage`].
    pub fn row(&self, path: &StorePath) -> Option<&PathInfo> {
        self.rows.get(path)
    }

    /// All paths of which the old database says anything.
    pub fn rows(&self) -> impl Iterator<Item = &PathInfo> {
        self.rows.values()
    }

    /// The damage of the old database. If there is any, rows may lack some of their references.
    pub fn damage(&self) -> Option<&StoreError> {
        match &self.old {
            OldDatabase::Damaged(reason) => Some(reason),
            OldDatabase::Absent | OldDatabase::Intact(_) => None,
        }
    }

    /// Calls `visit` for each of some paths with its place on disk, on several threads. `len` is
    /// the expected size of a NAR. `jobs` limits the number of paths in work at once.
    ///
    /// Errors: [`StoreError::Interrupted`].
    pub fn for_each_tree(
        &self,
        paths: Vec<&StorePath>,
        jobs: Option<NonZeroUsize>,
        progress: &dyn Progress,
        len: &(dyn Fn(&StorePath) -> u64 + Sync),
        visit: &(dyn Fn(&StorePath, &Path, &Worker) + Sync),
    ) -> Result<(), StoreError> {
        hash_all(paths, jobs, progress, &|path| len(path), &|path, worker| {
            visit(path, &self.layout.real_path(path), worker);
        })
    }

    /// Reads a derivation of the store. Follows no symbolic link.
    ///
    /// Errors: those of the file, and [`StoreError::Derivation`].
    pub fn derivation(&self, path: &StorePath) -> Result<Derivation, StoreError> {
        read_derivation(&self.layout, path)
    }

    /// Checks that the paths of a derivation's outputs follow from its contents. Does nothing for
    /// other paths.
    ///
    /// Errors: [`StoreError::Derivation`], and those of the system.
    pub fn check_derivation(&self, info: &PathInfo) -> Result<(), StoreError> {
        self.derivations.outputs(&self.layout, info)?;
        Ok(())
    }

    /// Gives a tree the modes, times and owner of store paths, unless the old database has the
    /// path.
    ///
    /// Errors: those of the system.
    pub fn canonicalise(&self, path: &StorePath) -> Result<(), StoreError> {
        if self.rows.contains_key(path) {
            return Ok(());
        }
        let store = &self.layout.real_store_dir;
        let owner = fs::metadata(store).io_context("examine", store)?.uid();
        canonicalise(&self.layout.real_path(path), owner)
    }

    /// Makes `infos` the valid paths. All references must be among them, and all derivations must
    /// have passed [`StoreRebuild::check_derivation`].
    ///
    /// Errors: those of the system and of the database, which stays as it was.
    pub fn finish(self, infos: &[&PathInfo]) -> Result<RebuiltDatabase, StoreError> {
        let mut all = Vec::with_capacity(infos.len());
        for info in infos {
            let outputs = self.derivations.outputs(&self.layout, info)?;
            all.push(Registration { info, outputs });
        }
        let _scope = self.options.lock_wait.enter_scope();
        match &self.old {
            OldDatabase::Intact(database) => {
                let is_unchanged = |info: &&&PathInfo| self.rows.get(&info.path) == Some(**info);
                let unchanged = infos.iter().filter(is_unchanged);
                let unchanged: HashSet<&StorePath> = unchanged.map(|info| &info.path).collect();
                let removed = database.lock().replace_all(&all, &unchanged)?;
                let saved = None;
                Ok(RebuiltDatabase { removed, saved })
            }
            OldDatabase::Absent | OldDatabase::Damaged(_) => {
                let wanted: HashSet<&StorePath> = infos.iter().map(|info| &info.path).collect();
                let is_removed = |path: &&StorePath| !wanted.contains(*path);
                Ok(RebuiltDatabase {
                    removed: self.rows.keys().filter(is_removed).count(),
                    saved: database_file::write(&self.layout, &self.options, &all)?,
                })
            }
        }
    }
}

/// Returns the names in the store directory that may be paths, sorted. Locks and the directories of
/// builds are none.
fn list_trees(layout: &StoreLayout) -> Result<Vec<StorePath>, StoreError> {
    let Some(store) = Directory::open_if_exists(&layout.real_store_dir)? else {
        return Ok(Vec::new());
    };
    let names = store.list().io_context("list", &layout.real_store_dir)?;
    let names = names.iter().filter_map(|(name, _)| name.to_str());
    let paths = names.filter_map(|name| StorePath::parse(name).ok());
    let is_path = |path: &StorePath| {
        !OTHER_SUFFIXES
            .iter()
            .any(|suffix| path.name().ends_with(suffix))
    };
    let mut paths: Vec<StorePath> = paths.filter(is_path).collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Acquires the big lock alone, and creates the directories of the store.
fn lock_alone(layout: &StoreLayout, options: &WriteOptions) -> Result<File, StoreError> {
    let path = layout.big_lock();
    let lock_wait = options.lock_wait.for_at_most(LOCK_WAIT_MAX);
    loop {
        create_directories(layout)?;
        let lock = open_lock_file(&path)?;
        let locked = lock_wait.wait("the programs that have the store open", &path, || {
            let operation = FlockOperation::NonBlockingLockExclusive;
            Ok(try_lock(&lock, &path, operation)?.then_some(()))
        });
        match locked {
            Err(StoreError::LockTimeout { .. }) => {
                return Err(StoreError::StoreInUse {
                    store: layout.real_store_dir.clone(),
                    processes: find_users(&path),
                });
            }
            locked => locked?,
        }
        let is_removed = lock.metadata().io_context("examine", &path)?.nlink() == 0;
        if !is_removed {
            return Ok(lock);
        }
    }
}

/// Opens the old database, and returns the rows that parse.
fn read_old(
    layout: &StoreLayout,
    options: &WriteOptions,
    dry_run: bool,
) -> Result<(OldDatabase, Vec<PathInfo>), StoreError> {
    mend_schema(layout, dry_run)?;
    let file = layout.database_dir().join("db.sqlite");
    match fs::symlink_metadata(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((OldDatabase::Absent, Vec::new()));
        }
        found => _ = found.io_context("examine", &file)?,
    }
    let opened = if dry_run {
        Database::open_for_reading(layout, BusyPolicy::CurrentScope).map(|(database, _)| database)
    } else {
        Database::open_writable(layout, &options.database(MissingTables::Create))
    };
    let database = match opened {
        Err(error) if error.is_damaged_database() => {
            return Ok((OldDatabase::Damaged(error), Vec::new()));
        }
        opened => opened?,
    };
    match database
        .check_integrity()
        .and_then(|()| read_rows(&database))
    {
        Ok(rows) => Ok((OldDatabase::Intact(Mutex::new(database)), rows)),
        Err(error) if error.is_damaged_database() => {
            let rows = database.salvage();
            Ok((OldDatabase::Damaged(error), rows))
        }
        Err(error) => Err(error),
    }
}

/// Replaces a schema file that has no number. The number of another schema is an error.
fn mend_schema(layout: &StoreLayout, dry_run: bool) -> Result<(), StoreError> {
    match check_schema(layout) {
        Err(StoreError::Schema { found, .. }) if found.parse::<u64>().is_err() => {
            if dry_run {
                return Ok(());
            }
            write_schema(layout)
        }
        checked => checked.map(|_| ()),
    }
}

fn read_rows(database: &Database) -> Result<Vec<PathInfo>, StoreError> {
    let mut rows = Vec::new();
    database.for_each_info(&mut |info| {
        rows.push(info);
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// The ends of names of files that look like paths and are none: locks, and the directories in
/// which Nix builds.
const OTHER_SUFFIXES: [&str; 2] = [".lock", ".chroot"];

/// Longer than a short command has the store open. A daemon has it open for as long as its clients
/// stay.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
