//! Makes the database of a store new from the trees on disk.
//!
//! 1. [`StoreRebuild::begin`] acquires the big lock alone, so that no other process has the store
//!    open for changes. It lists the trees, and reads the rows of the old database.
//! 2. [`StoreRebuild::for_each_tree`] lets the caller hash the trees on all cores. The caller
//!    decides which of them it trusts.
//! 3. [`StoreRebuild::check_derivation`] checks the paths of the outputs of a derivation, and
//!    [`StoreRebuild::canonicalise`] gives a tree the modes of store paths.
//! 4. [`StoreRebuild::finish`] writes the rows. An intact database gets them in one transaction. In
//!    the place of a damaged one comes a new file, and the old file stays under another name
//!    (`write/rebuild/database_file`).
//!
//! Roots, profiles and logs stay as they are. A killed rebuild leaves the old database.

mod database_file;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use floe_format::{Derivation, PathInfo, StorePath};
use floe_hash::hash_pool::Worker;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;

use super::crash_recovery::is_unfinished_name;
use super::derivation_checks::DerivationChecks;
use crate::db::{
    BusyPolicy, DamagedRow, Database, MissingTables, Registration, check_schema, find_users,
    remove_stale_lock_directory, write_schema,
};
use crate::disk::mount_id::check_no_mounts;
use crate::disk::{Directory, StoreLayout, list_directory, read_derivation};
use crate::error::{IoContext as _, StoreError};
use crate::events::StoreEvents;
use crate::locks::{open_lock_file, try_lock};
use crate::open_store::{create_directories, refuse_symlinks};
use crate::options::WriteOptions;
use crate::progress::{Progress, hash_all};
use crate::tree::canonicalise;

/// A store whose database is made new.
#[derive(Debug)]
pub struct StoreRebuild {
    layout: StoreLayout,
    options: WriteOptions,
    trees: Vec<StorePath>,
    rows: BTreeMap<StorePath, OldRow>,
    old: OldDatabase,
    derivations: DerivationChecks,
    /// Held alone; `None` in a dry run.
    big_lock: Option<File>,
}

/// The row of a path in an old database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldRow {
    /// The contents of the row.
    pub info: PathInfo,
    /// Whether the path is valid now. Otherwise an earlier rebuild has left it out.
    pub is_valid: bool,
    /// Whether references may be missing, because the database is damaged.
    pub may_lack_references: bool,
}

/// The database that a store had.
#[derive(Debug)]
enum OldDatabase {
    Absent,
    Intact(Mutex<Database>),
    /// With the reason.
    Damaged(StoreError),
}

impl StoreRebuild {
    /// Lists the trees of a store, and reads its old database. A dry run writes nothing.
    ///
    /// Errors: [`StoreError::NoTrees`] if there is nothing to register, [`StoreError::StoreInUse`],
    /// [`StoreError::Schema`], [`StoreError::SymlinkedStore`], [`StoreError::Interrupted`], and
    /// those of the system.
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
        if !options.allow_symlinked_store {
            refuse_symlinks(&layout.real_store_dir)?;
        }
        // The file system of the store may not be mounted, so that its rows are right.
        if list_names(&layout)?.is_empty() {
            return Err(StoreError::NoTrees(layout.real_store_dir));
        }
        let lock = || lock_alone(&layout, &options);
        let big_lock = (!dry_run).then(lock).transpose()?;
        let scope = options.lock_wait.enter_scope();
        let (old, rows) = read_old(&layout, &options, dry_run)?;
        drop(scope);
        let may_lack_references = matches!(old, OldDatabase::Damaged(_));
        let mut by_path = BTreeMap::new();
        for info in rows {
            by_path.insert(
                info.path.clone(),
                OldRow {
                    info,
                    is_valid: true,
                    may_lack_references,
                },
            );
        }
        add_saved_rows(&layout, &mut by_path)?;
        let rows = by_path;
        // Until the lock was acquired, a collector may have removed some.
        let mut trees = list_names(&layout)?;
        trees.retain(|path| rows.contains_key(path) || !is_working_file(&layout, path));
        Ok(StoreRebuild {
            trees,
            rows,
            layout,
            options,
            old,
            derivations: DerivationChecks::default(),
            big_lock,
        })
    }

    /// The directories of the store.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// Whether nothing is written.
    pub fn is_dry_run(&self) -> bool {
        self.big_lock.is_none()
    }

    /// The files and directories of the store that may be paths, sorted by name.
    pub fn trees(&self) -> &[StorePath] {
        &self.trees
    }

    /// The row of a path in the old database, or in one that an earlier rebuild has saved.
    pub fn row(&self, path: &StorePath) -> Option<&OldRow> {
        self.rows.get(path)
    }

    /// The paths of the old database, sorted.
    pub fn valid_paths(&self) -> impl Iterator<Item = &StorePath> {
        let rows = self.rows.iter().filter(|(_, row)| row.is_valid);
        rows.map(|(path, _)| path)
    }

    /// The damage of the old database. If there is any, rows may lack some of their references.
    pub fn damage(&self) -> Option<&StoreError> {
        match &self.old {
            OldDatabase::Damaged(reason) => Some(reason),
            OldDatabase::Absent | OldDatabase::Intact(_) => None,
        }
    }

    /// The rows of an intact database that do not parse.
    pub fn skipped_rows(&self) -> Vec<DamagedRow> {
        match &self.old {
            OldDatabase::Intact(database) => database.lock().skipped_rows(),
            OldDatabase::Absent | OldDatabase::Damaged(_) => Vec::new(),
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

    /// Gives a tree the modes, times and owner of store paths.
    ///
    /// Errors: those of the system.
    pub fn canonicalise(&self, path: &StorePath) -> Result<(), StoreError> {
        let place = self.layout.real_path(path);
        check_no_mounts(&place)?;
        canonicalise(&place, owner(&self.layout)?)
    }

    /// Makes `infos`, which are sorted by path, the valid paths. All references must be among them,
    /// and new derivations must have passed [`StoreRebuild::check_derivation`]. A dry run does
    /// nothing.
    ///
    /// Returns the old database under its new name: a damaged file, or a copy if rows are lost.
    ///
    /// Errors: those of the system and of the database, which stays as it was.
    pub fn finish(self, infos: &[&PathInfo]) -> Result<Option<PathBuf>, StoreError> {
        if self.is_dry_run() {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(infos.len());
        for info in infos {
            let outputs = match self.derivations.outputs(&self.layout, info) {
                // A newer Nix has registered a derivation of another form.
                Err(StoreError::Derivation { .. }) => Vec::new(),
                outputs => outputs?,
            };
            all.push(Registration { info, outputs });
        }
        let _scope = self.options.lock_wait.enter_scope();
        let saved = match &self.old {
            OldDatabase::Intact(database) => self.replace_rows(&database.lock(), infos, &all)?,
            OldDatabase::Absent | OldDatabase::Damaged(_) => {
                database_file::write(&self.layout, &self.options, &all)?
            }
        };
        give_to_owner(&self.layout)?;
        Ok(saved)
    }

    /// Replaces the rows of an intact database. Copies it first if it loses rows.
    fn replace_rows(
        &self,
        database: &Database,
        infos: &[&PathInfo],
        all: &[Registration<'_>],
    ) -> Result<Option<PathBuf>, StoreError> {
        let is_registered =
            |path: &StorePath| infos.binary_search_by(|info| info.path.cmp(path)).is_ok();
        let is_unchanged = |info: &&&PathInfo| {
            let row = self.rows.get(&info.path);
            row.is_some_and(|row| row.is_valid && row.info == ***info)
        };
        let unchanged = infos.iter().filter(is_unchanged);
        let unchanged: HashSet<&StorePath> = unchanged.map(|info| &info.path).collect();
        let loses_rows = self.valid_paths().any(|path| !is_registered(path))
            || !database.damaged_rows()?.is_empty();
        let save = || database_file::save_copy(&self.layout, database);
        let saved = loses_rows.then(save).transpose()?;
        database.replace_all(all, &unchanged)?;
        Ok(saved)
    }
}

/// Returns the names in the store directory that may be paths, sorted.
fn list_names(layout: &StoreLayout) -> Result<Vec<StorePath>, StoreError> {
    let Some(store) = Directory::open_if_exists(&layout.real_store_dir)? else {
        return Ok(Vec::new());
    };
    let names = store.list().io_context("list", &layout.real_store_dir)?;
    let names = names.iter().filter_map(|(name, _)| name.to_str());
    let mut paths: Vec<StorePath> = names
        .filter_map(|name| StorePath::parse(name).ok())
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Adds the rows of databases that earlier rebuilds have saved, the newest first.
fn add_saved_rows(
    layout: &StoreLayout,
    rows: &mut BTreeMap<StorePath, OldRow>,
) -> Result<(), StoreError> {
    for file in database_file::saved(layout)? {
        // A copy that cannot be read has nothing to add.
        let Ok(database) = Database::open_saved(layout, &file) else {
            continue;
        };
        let read = database
            .check_integrity()
            .and_then(|()| read_rows(&database));
        let may_lack_references = read.is_err();
        for info in read.unwrap_or_else(|_| database.salvage()) {
            rows.entry(info.path.clone()).or_insert(OldRow {
                info,
                is_valid: false,
                may_lack_references,
            });
        }
    }
    Ok(())
}

/// The owner of the store directory.
fn owner(layout: &StoreLayout) -> Result<u32, StoreError> {
    let store = &layout.real_store_dir;
    Ok(fs::metadata(store).io_context("examine", store)?.uid())
}

/// Gives the state directory that root has made to the owner of the store.
fn give_to_owner(layout: &StoreLayout) -> Result<(), StoreError> {
    let owner = owner(layout)?;
    if !rustix::process::geteuid().is_root() || owner == 0 {
        return Ok(());
    }
    let directories = STATE_DIRECTORIES.map(|name| layout.state_dir.join(name));
    let database = layout.database_dir();
    let files = list_directory(&database).io_context("list", &database)?;
    let files = files.flatten().map(|file| file.path().to_path_buf());
    for place in directories.into_iter().chain(files) {
        match fs::symlink_metadata(&place) {
            Ok(found) if found.uid() == 0 => {
                lchown(&place, Some(owner), None).io_context("give away", &place)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a file is the lock of a path, the directory in which Nix builds one, or an unfinished
/// tree of a killed floe. Their names look like those of paths.
fn is_working_file(layout: &StoreLayout, path: &StorePath) -> bool {
    let found = fs::symlink_metadata(layout.real_path(path));
    found.is_ok_and(|found| {
        let is_lock = path.name().ends_with(".lock") && found.is_file() && found.len() == 0;
        is_lock || is_unfinished_name(path) || path.name().ends_with(".chroot") && found.is_dir()
    })
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
            remove_stale_lock_directory(&layout.database_dir().join("db.sqlite"), &lock);
            database_file::remove_unfinished(layout)?;
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

/// The directories of the state that a rebuild may make.
const STATE_DIRECTORIES: [&str; 9] = [
    "..",
    "",
    "db",
    "gcroots",
    "gcroots/per-user",
    "profiles",
    "profiles/per-user",
    "temproots",
    "gc.lock",
];

/// Longer than a short command has the store open. A daemon has it open for as long as its clients
/// stay.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
