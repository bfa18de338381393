//! Roots whose file systems are not mounted.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::StorePath;

use super::root_records::{RootRecord, RootRecords};
use super::{AUTO, absolute_to, auto_root_name};
use crate::disk::mount_table::{MountTable, mount_number};
use crate::disk::{Directory, StoreLayout};
use crate::error::StoreError;

/// The reason why a root is not there.
pub(super) enum MissingRoot {
    /// The root was removed.
    Removed,
    /// The way to its place now ends on another mount than the place was on: its file system is
    /// not mounted, or another one hides it.
    NotMounted(RootRecord),
    /// The root has no record, and the way to its place ends in this empty directory.
    BelowEmptyDirectory(PathBuf),
}

/// The records of roots, as one search or one registration uses them. It reads the table of mounts
/// at most once.
pub(super) struct RecordedRoots<'a> {
    layout: &'a StoreLayout,
    records: OnceCell<Option<RootRecords>>,
    mounts: OnceCell<MountTable>,
    /// The examined directories, and whether they are empty.
    directories: RefCell<HashMap<PathBuf, bool>>,
}

impl<'a> RecordedRoots<'a> {
    pub(super) fn new(layout: &'a StoreLayout) -> RecordedRoots<'a> {
        RecordedRoots {
            layout,
            records: OnceCell::new(),
            mounts: OnceCell::new(),
            directories: RefCell::default(),
        }
    }

    /// Returns the record of a root, if there is one.
    ///
    /// Errors: those of the system, and one about a damaged record.
    pub(super) fn record(&self, place: &Path) -> Result<Option<RootRecord>, StoreError> {
        match self.records()? {
            Some(records) => records.read(place),
            None => Ok(None),
        }
    }

    /// Finds out why a root is not there.
    ///
    /// Errors: those of [`RecordedRoots::record`].
    pub(super) fn find_missing(&self, place: &Path) -> Result<MissingRoot, StoreError> {
        Ok(match self.record(place)? {
            Some(record) if self.is_on_mount(place, &record.mount_point) => MissingRoot::Removed,
            Some(record) => MissingRoot::NotMounted(record),
            None => match self.possible_mount_point(place) {
                Some(directory) => MissingRoot::BelowEmptyDirectory(directory),
                None => MissingRoot::Removed,
            },
        })
    }

    /// Whether the nearest existing directory on the way to a place is on the mount of this
    /// directory. The system mounts some file systems at the first access, and the caller has
    /// looked at the place. If only the place of such a file system is there, it could not be
    /// mounted.
    fn is_on_mount(&self, place: &Path, mount_point: &Path) -> bool {
        let directory = nearest_directory(place);
        let number = directory.and_then(|directory| mount_number(&directory).ok());
        number.is_some_and(|number| self.mounts().is_mounted(number, mount_point))
    }

    /// Returns the directory that may have had the file system of a missing root, or that may
    /// hide it: an empty one, if it is not the root's own directory.
    fn possible_mount_point(&self, place: &Path) -> Option<PathBuf> {
        let directory = nearest_directory(place)?;
        if place.parent() == Some(&directory) {
            return None;
        }
        let mut directories = self.directories.borrow_mut();
        let is_possible = directories.entry(directory.clone());
        let is_possible = is_possible.or_insert_with(|| is_empty(&directory));
        is_possible.then_some(directory)
    }

    /// Writes the record of a root that exists.
    ///
    /// Errors: those of the system.
    pub(super) fn update(&self, place: &Path, path: &StorePath) -> Result<(), StoreError> {
        let Some(number) = place.parent().and_then(|it| mount_number(it).ok()) else {
            return Ok(());
        };
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

/// Whether a directory has no names.
fn is_empty(directory: &Path) -> bool {
    let opened = Directory::open(directory);
    opened.is_ok_and(|opened| opened.is_empty().unwrap_or(false))
}

/// Returns the nearest existing directory on the way to a place. Follows a symbolic link to a
/// directory that does not exist.
fn nearest_directory(place: &Path) -> Option<PathBuf> {
    let mut place = place.to_path_buf();
    for _ in 0..LINKS_MAX {
        let mut ancestors = place.ancestors().skip(1);
        let (found, target) = ancestors.find_map(|path| match fs::metadata(path) {
            Ok(_) => Some((path, None)),
            Err(_) => Some((path, Some(fs::read_link(path).ok()?))),
        })?;
        let Some(target) = target else {
            return Some(found.to_path_buf());
        };
        let below = place.strip_prefix(found).ok()?;
        place = absolute_to(found.parent()?, &target).join(below);
    }
    None
}

/// As many symbolic links as Linux follows in a path.
const LINKS_MAX: usize = 40;
