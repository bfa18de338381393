//! The links in the directories of roots, `gcroots` and `profiles`, and the links outside that they
//! name.
//!
//! Users own some of these directories and may exchange them at any moment. The search therefore
//! opens each directory once, and reads and removes its names relative to the descriptor.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::not_mounted::{MissingRoot, RecordUpdate, RecordedRoots};
use super::root_place::{Candidate, RootPlace, name_in_store, store_path_of_name};
use super::unreadable::{HiddenRoots, Unreadable};
use super::{AUTO, absolute_to};
use crate::disk::{Directory, Entry, StoreLayout, is_trusted_owner};
use crate::error::{IoContext as _, StoreError};

/// The reaction to a root that may keep a path and whose file system fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedRoots {
    /// The search ends with an error: a deletion could delete what the root keeps.
    Stop,
    /// The search skips the root and reports it.
    Skip,
}

/// A link in `gcroots/auto` that points to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleRegistration {
    /// The link.
    pub link: PathBuf,
    /// The place of the root, which does not exist.
    pub place: PathBuf,
}

/// The search for links.
pub(super) struct Links<'a> {
    layout: &'a StoreLayout,
    /// The roots that were found.
    pub(super) candidates: Vec<Candidate>,
    /// The registrations that point to nothing. If the search may change the store, it has removed
    /// them.
    pub(super) stale: Vec<StaleRegistration>,
    unreadable: &'a mut Vec<Unreadable>,
    failed_roots: FailedRoots,
    recorded: RecordedRoots<'a>,
    /// The update of the records, if the search may change the store.
    update: Option<RecordUpdate>,
    /// Roots on file systems that are not mounted.
    not_mounted: Option<(HiddenRoots, PathBuf)>,
    /// Roots without records below an empty directory.
    below_empty: Option<(HiddenRoots, PathBuf)>,
}

impl<'a> Links<'a> {
    /// Returns a search that changes nothing.
    pub(super) fn new(
        layout: &'a StoreLayout,
        unreadable: &'a mut Vec<Unreadable>,
        failed_roots: FailedRoots,
    ) -> Links<'a> {
        Links {
            layout,
            candidates: Vec::new(),
            stale: Vec::new(),
            unreadable,
            failed_roots,
            recorded: RecordedRoots::new(layout),
            update: None,
            not_mounted: None,
            below_empty: None,
        }
    }

    /// Lets the search remove links in `gcroots/auto` that point to nothing, and update the records
    /// of roots.
    pub(super) fn with_changes(mut self) -> Links<'a> {
        self.update = Some(RecordUpdate::begin(&self.recorded));
        self
    }

    /// Visits all directories of roots.
    ///
    /// Errors: [`StoreError::FailedRoot`], [`StoreError::ForeignLink`], and those of the
    /// directories.
    pub(super) fn visit_all(&mut self) -> Result<(), StoreError> {
        self.visit_directories()?;
        // A directory that could not be read may name the root of a record.
        let is_complete = self.unreadable.is_empty();
        if let Some(update) = self.update.take()
            && let Some(error) = update.finish(&self.recorded, is_complete)
        {
            let error = Unreadable::NotRecorded(error.to_string());
            self.unreadable.push(error);
        }
        let not_mounted = self.not_mounted.take();
        let not_mounted =
            not_mounted.map(|(roots, mount_point)| Unreadable::NotMounted { roots, mount_point });
        let below_empty = self.below_empty.take();
        let below_empty = below_empty
            .map(|(roots, directory)| Unreadable::BelowEmptyDirectory { roots, directory });
        self.unreadable
            .extend(not_mounted.into_iter().chain(below_empty));
        Ok(())
    }

    fn visit_directories(&mut self) -> Result<(), StoreError> {
        for name in ROOT_DIRECTORIES {
            let place = self.layout.state_dir.join(name);
            match Directory::open_if_exists(&place) {
                Ok(Some(directory)) => self.visit(&directory, 0)?,
                Ok(None) => {}
                // A file in its place may have replaced roots.
                Err(StoreError::Io { source, .. }) if is_skipped(&source) => {
                    self.unreadable.push(Unreadable::Link(place));
                }
                Err(error @ StoreError::Io { .. }) => self.fail(error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn visit(&mut self, directory: &Directory, depth: usize) -> Result<(), StoreError> {
        let names = match directory.list() {
            Err(error) if is_skipped(&error) => {
                self.skip(directory.path(), &error);
                return Ok(());
            }
            names => names.io_context("list", directory.path())?,
        };
        for (name, file_type) in names {
            let entry = directory.entry(&name);
            match file_type {
                FileType::Directory => self.visit_below(directory, &name, depth)?,
                FileType::Symlink if self.is_state_directory(&entry) => {
                    self.visit_linked(&entry, depth)?;
                }
                FileType::Symlink => self.add_link(directory, &entry)?,
                FileType::RegularFile => {
                    let kept = name.to_str().and_then(|name| StorePath::parse(name).ok());
                    if let Some(kept) = kept {
                        self.add(entry.path(), kept);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Visits a directory of Nix that is a symbolic link.
    fn visit_linked(&mut self, link: &Entry<'_>, depth: usize) -> Result<(), StoreError> {
        match Directory::open_if_exists(&link.path()) {
            Ok(Some(directory)) => self.visit(&directory, depth + 1),
            Ok(None) => Ok(()),
            Err(error @ StoreError::Io { .. }) => self.fail(error),
            Err(error) => Err(error),
        }
    }

    fn visit_below(
        &mut self,
        directory: &Directory,
        name: &OsStr,
        depth: usize,
    ) -> Result<(), StoreError> {
        if depth == DEPTH_MAX {
            let place = self.beginning(directory.path());
            self.unreadable.push(Unreadable::TooDeep(place));
            return Ok(());
        }
        match directory.subdirectory(name) {
            Ok(below) => self.visit(&below, depth + 1),
            Err(error) if is_skipped(&error) => {
                self.skip(&directory.path().join(name), &error);
                Ok(())
            }
            Err(error) => Err(error).io_context("open", directory.path().join(name)),
        }
    }

    /// Notes a directory or link that this user may not read. One that has vanished, or was
    /// exchanged meanwhile, keeps nothing.
    fn skip(&mut self, place: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::PermissionDenied {
            self.unreadable.push(Unreadable::Link(place.to_path_buf()));
        }
    }

    /// The first directories of a path, for a message.
    fn beginning(&self, place: &Path) -> PathBuf {
        let len = self.layout.state_dir.components().count() + SHOWN_DEPTH;
        place.components().take(len).collect()
    }

    /// Whether a link stands for a directory that Nix makes. An administrator may have moved the
    /// directory to another file system.
    fn is_state_directory(&self, link: &Entry<'_>) -> bool {
        let moved = [AUTO, "gcroots/per-user", "profiles/per-user"];
        let moved = moved.map(|name| self.layout.state_dir.join(name));
        moved.contains(&link.path())
    }

    /// Adds a link into the store, or the link outside that a link names.
    fn add_link(&mut self, directory: &Directory, link: &Entry<'_>) -> Result<(), StoreError> {
        let place = link.path();
        let target = match link.read_link() {
            Err(error) if is_skipped(&error) || is_not_a_link(&error) => {
                self.skip(&place, &error);
                return Ok(());
            }
            target => target.io_context("read the root", &place)?,
        };
        if self.add_target(&place, &target) {
            return Ok(());
        }
        let indirect = absolute_to(directory.path(), &target);
        if let Some(update) = &mut self.update {
            update.note_place(&indirect);
        }
        match fs::read_link(&indirect) {
            Ok(target) => self.add_indirect(&indirect, &target),
            Err(error) if is_not_a_link(&error) => self.note_directory(link, indirect),
            found if is_nothing(&found) => self.add_missing(link, &indirect)?,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.add_unreadable(link, indirect, error)?;
            }
            // No file has such a path, so it cannot be a root.
            Err(error) if is_impossible(&error) => {
                let place = self.beginning(&place);
                self.unreadable.push(Unreadable::NoRoot(place));
            }
            // The root may exist.
            Err(source) => {
                let failed = StoreError::FailedRoot {
                    link: place,
                    root: indirect,
                    source,
                };
                self.fail(failed)?;
            }
        }
        Ok(())
    }

    /// Adds a root that this user may not read, by its record. Without a record it keeps nothing,
    /// as in Nix. Root may read everything but file systems of other users, whose roots may exist.
    fn add_unreadable(
        &mut self,
        link: &Entry<'_>,
        place: PathBuf,
        source: io::Error,
    ) -> Result<(), StoreError> {
        match self.recorded.record(&place) {
            Ok(Some(record)) => {
                self.add(record.place, record.path);
                Ok(())
            }
            Ok(None) if geteuid().is_root() => self.fail(StoreError::FailedRoot {
                link: link.path(),
                root: place,
                source,
            }),
            Ok(None) => {
                self.unreadable.push(Unreadable::Link(place));
                Ok(())
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, failed: StoreError) -> Result<(), StoreError> {
        match self.failed_roots {
            FailedRoots::Stop => Err(failed),
            FailedRoots::Skip => {
                self.unreadable.push(Unreadable::Failed(failed.to_string()));
                Ok(())
            }
        }
    }

    /// Adds a root outside that a link names, unless it is a link elsewhere.
    fn add_indirect(&mut self, place: &Path, target: &Path) {
        self.add_target(place, target);
        let name = name_in_store(&self.layout.store_dir, target);
        if let Some(update) = &mut self.update
            && let Some(path) = name.and_then(store_path_of_name)
        {
            update.note(self.recorded.update(place, &path));
        }
    }

    /// Adds a root that is not there if its file system is not mounted and a record tells what it
    /// keeps. Otherwise its registration is stale, unless the file system may be missing.
    fn add_missing(&mut self, link: &Entry<'_>, place: &Path) -> Result<(), StoreError> {
        let is_registration = self.is_registration(&link.path());
        match self.recorded.find_missing(place) {
            Ok(MissingRoot::NotMounted(record)) => {
                count_hidden(&mut self.not_mounted, link, place, record.mount_point);
                self.add(record.place, record.path);
            }
            Ok(_) if !is_registration => {}
            Ok(MissingRoot::BelowEmptyDirectory(directory)) => {
                count_hidden(&mut self.below_empty, link, place, directory);
            }
            Ok(MissingRoot::Removed) => self.remove_stale(link, place),
            Err(error) => return self.fail(error),
        }
        Ok(())
    }

    /// Notes a link of the administrator to a directory, whose links are not roots. A registered
    /// root may have been replaced by a directory, which needs no word.
    fn note_directory(&mut self, link: &Entry<'_>, target: PathBuf) {
        let place = link.path();
        let is_own = link
            .stat()
            .is_ok_and(|found| is_trusted_owner(found.st_uid));
        let is_noted = is_own && !self.is_registration(&place) && !self.is_searched(&target);
        if is_noted && fs::symlink_metadata(target).is_ok_and(|found| found.is_dir()) {
            self.unreadable.push(Unreadable::LinkToDirectory(place));
        }
    }

    /// Whether the search reads a directory in any case. Nix 2.8 makes the link `gcroots/profiles`
    /// to the profiles.
    fn is_searched(&self, directory: &Path) -> bool {
        let Ok(directory) = fs::canonicalize(directory) else {
            return false;
        };
        ROOT_DIRECTORIES.iter().any(|name| {
            let place = fs::canonicalize(self.layout.state_dir.join(name));
            place.is_ok_and(|place| directory.starts_with(place))
        })
    }

    fn is_registration(&self, link: &Path) -> bool {
        link.starts_with(self.layout.state_dir.join(AUTO))
    }

    /// Removes a registration that points to nothing, `target`, if the search may change the store.
    ///
    /// Meanwhile another process may make the root again, and with it this link. The link is
    /// therefore moved aside first, and put back if the root exists by then. No other collector
    /// sees its absence, because this one holds the lock.
    fn remove_stale(&mut self, link: &Entry<'_>, target: &Path) {
        let stale = StaleRegistration {
            link: link.path(),
            place: target.to_path_buf(),
        };
        let Some(update) = &mut self.update else {
            self.stale.push(stale);
            return;
        };
        // The process that makes the root again writes the record after this.
        update.note(self.recorded.forget(target));
        // Another user may own the link. It keeps nothing.
        let Ok(aside) = link.move_aside() else {
            return;
        };
        let found = fs::read_link(target);
        if is_nothing(&found) {
            if aside.remove().is_ok() {
                self.stale.push(stale);
            }
            return;
        }
        // Another process may have made the link again. Both links have the same target.
        let _: io::Result<()> = aside.move_back();
        if let Ok(kept) = found {
            self.add_indirect(target, &kept);
        }
    }

    /// Adds a link if its target is in the store, and returns whether it is. As in Nix, the text of
    /// the target decides, and its first name there counts: `..` after it has no meaning.
    fn add_target(&mut self, link: &Path, target: &Path) -> bool {
        let Some(name) = name_in_store(&self.layout.store_dir, target) else {
            return false;
        };
        if let Some(kept) = store_path_of_name(name) {
            self.add(link.to_path_buf(), kept);
        }
        true
    }

    fn add(&mut self, link: PathBuf, path: StorePath) {
        self.candidates.push(Candidate {
            place: RootPlace::Link(link),
            path,
        });
    }
}

/// Counts a root whose file system may return, with a property of the first one.
fn count_hidden(
    counted: &mut Option<(HiddenRoots, PathBuf)>,
    link: &Entry<'_>,
    place: &Path,
    directory: PathBuf,
) {
    let first = || {
        let roots = HiddenRoots {
            count: 0,
            first: place.to_path_buf(),
            link: link.path(),
        };
        (roots, directory)
    };
    counted.get_or_insert_with(first).0.count += 1;
}

/// Whether there is nothing at the place of a link.
fn is_nothing(found: &io::Result<PathBuf>) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(found, Err(error) if matches!(error.kind(), NotFound | NotADirectory))
}

/// Whether the search skips a directory or link with this error.
fn is_skipped(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotADirectory | NotFound | PermissionDenied) || is_loop(error)
}

/// Whether the file is not a symbolic link.
fn is_not_a_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// Whether a path has so many links, or so long a name, that no file can have it.
fn is_impossible(error: &io::Error) -> bool {
    is_loop(error) || error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error())
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// The directories with roots, below the state directory.
const ROOT_DIRECTORIES: [&str; 2] = ["gcroots", "profiles"];

/// The depth of directories that Nix and its users make is at most 4. The search has one open
/// directory for each level.
const DEPTH_MAX: usize = 64;

/// The directories below the state directory that a message shows.
const SHOWN_DEPTH: usize = 4;
