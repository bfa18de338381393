//! Roots whose file systems are not mounted.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::StorePath;

use super::root_records::{RootRecord, RootRecords};
use super::{AUTO, absolute_to, auto_root_name};
use crate::directory::Directory;
use crate::error::StoreError;
use crate::layout::StoreLayout;
use crate::mount_table::{MountTable, is_mount_point, mount_number};

/// The records of roots, as one search or one registration uses them. It reads the table of mounts
/// at most once, and only for a root that is on another file system, or that may be.
pub(super) struct RecordedRoots<'a> {
    layout: &'a StoreLayout,
    records: OnceCell<Option<RootRecords>>,
    mounts: OnceCell<MountTable>,
    /// The mount of `/`, whose roots need no record.
    first_mount: OnceCell<Option<u64>>,
    /// The examined directories, and whether a file system may have been mounted there.
    directories: RefCell<HashMap<PathBuf, bool>>,
}

impl<'a> RecordedRoots<'a> {
    pub(super) fn new(layout: &'a StoreLayout) -> RecordedRoots<'a> {
        RecordedRoots {
            layout,
            records: OnceCell::new(),
            mounts: OnceCell::new(),
            first_mount: OnceCell::new(),
            directories: RefCell::default(),
        }
    }

    /// Returns the record of a root that is not there, if the file system of the root is not
    /// mounted.
    ///
    /// Errors: those of the system.
    pub(super) fn not_mounted(&self, place: &Path) -> Result<Option<RootRecord>, StoreError> {
        let Some(records) = self.records()? else {
            return Ok(None);
        };
        let record = records.read(place)?;
        Ok(record.filter(|record| !self.mounts().is_mounted(&record.mount_point)))
    }

    /// Returns the directory on which the file system of a missing root may have been mounted: an
    /// empty one without a mounted file system, if it is not the root's own directory.
    pub(super) fn possible_mount_point(&self, place: &Path) -> Option<PathBuf> {
        let directory = nearest_directory(place)?;
        let mut directories = self.directories.borrow_mut();
        let is_possible = directories.entry(directory.clone());
        let is_possible = is_possible.or_insert_with(|| self.is_empty_without_mount(&directory));
        is_possible.then_some(directory)
    }

    fn is_empty_without_mount(&self, directory: &Path) -> bool {
        let opened = Directory::open(directory);
        let is_empty = opened.is_ok_and(|opened| opened.is_empty().unwrap_or(false));
        let has_mount = || is_mount_point(directory) && !self.mounts().is_autofs(directory);
        is_empty && !has_mount()
    }

    /// Writes the record of a root that exists, or removes it if the root needs none.
    ///
    /// Errors: those of the system.
    pub(super) fn update(&self, place: &Path, path: &StorePath) -> Result<(), StoreError> {
        let Some(number) = place.parent().and_then(|it| mount_number(it).ok()) else {
            return Ok(());
        };
        let first = self
            .first_mount
            .get_or_init(|| mount_number(Path::new("/")).ok());
        if *first == Some(number) {
            return self.forget(place);
        }
        // Without the table, or for a newer mount, an earlier record may be right.
        let Some(mount_point) = self.mounts().mount_point(number) else {
            return Ok(());
        };
        let record = RootRecord {
            mount_point: mount_point.to_path_buf(),
            place: place.to_path_buf(),
            path: path.clone(),
        };
        match self.records()? {
            Some(records) => records.write(&record),
            None => RootRecords::open_or_create(self.layout)?.write(&record),
        }
    }

    /// Removes the record of a root, if there is one.
    ///
    /// Errors: those of the system.
    pub(super) fn forget(&self, place: &Path) -> Result<(), StoreError> {
        match self.records()? {
            Some(records) => records.remove(&auto_root_name(place)),
            None => Ok(()),
        }
    }

    fn mounts(&self) -> &MountTable {
        self.mounts.get_or_init(MountTable::read)
    }

    fn records(&self) -> Result<Option<&RootRecords>, StoreError> {
        if let Some(records) = self.records.get() {
            return Ok(records.as_ref());
        }
        let opened = RootRecords::open(self.layout)?;
        Ok(self.records.get_or_init(|| opened).as_ref())
    }
}

/// The records that a collection has not yet found a root for.
pub(super) struct RecordUpdate {
    unseen: HashSet<OsString>,
    error: Option<StoreError>,
}

impl RecordUpdate {
    /// Begins an update, before the search for roots: a record that another process writes later is
    /// not in the list.
    pub(super) fn begin(recorded: &RecordedRoots<'_>) -> RecordUpdate {
        let records = recorded.records();
        let names = records.and_then(|records| records.map_or(Ok(Vec::new()), RootRecords::names));
        let (names, error) = match names {
            Ok(names) => (names, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        RecordUpdate {
            unseen: names.into_iter().collect(),
            error,
        }
    }

    /// Notes that a link names the place of a root.
    pub(super) fn note_place(&mut self, place: &Path) {
        if !self.unseen.is_empty() {
            self.unseen.remove(&auto_root_name(place));
        }
    }

    /// Notes the result of a change of a record.
    pub(super) fn note(&mut self, changed: Result<(), StoreError>) {
        if let Err(error) = changed {
            self.error.get_or_insert(error);
        }
    }

    /// Removes the records of roots that no link names, if the search has read all links. Returns
    /// the first error.
    pub(super) fn finish(
        mut self,
        recorded: &RecordedRoots<'_>,
        is_complete: bool,
    ) -> Option<StoreError> {
        let auto = recorded.layout.state_dir.join(AUTO);
        let unseen = std::mem::take(&mut self.unseen).into_iter();
        for name in unseen.filter(|_| is_complete) {
            // Another process may have registered the root again meanwhile.
            if fs::symlink_metadata(auto.join(&name)).is_ok() {
                continue;
            }
            match recorded.records() {
                Ok(Some(records)) => self.note(records.remove(&name)),
                Ok(None) => {}
                Err(error) => self.note(Err(error)),
            }
        }
        self.error
    }
}

/// Returns the nearest existing directory on the way to a place, if it is not the own directory of
/// the place. Follows a symbolic link to a directory that does not exist.
fn nearest_directory(place: &Path) -> Option<PathBuf> {
    let mut place = place.to_path_buf();
    for _ in 0..LINKS_MAX {
        let mut ancestors = place.ancestors().skip(1);
        let (found, target) = ancestors.find_map(|path| match fs::metadata(path) {
            Ok(_) => Some((path, None)),
            Err(_) => Some((path, Some(fs::read_link(path).ok()?))),
        })?;
        let Some(target) = target else {
            let is_own = place.parent() == Some(found);
            return (!is_own).then(|| found.to_path_buf());
        };
        let below = place.strip_prefix(found).ok()?;
        place = absolute_to(found.parent()?, &target).join(below);
    }
    None
}

/// As many symbolic links as Linux follows in a path.
const LINKS_MAX: usize = 40;
