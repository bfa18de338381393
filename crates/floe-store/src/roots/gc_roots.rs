//! GC roots: links outside the store that protect paths from garbage collection.
//!
//! An indirect root is a symbolic link anywhere on the disk, which any user may create and remove.
//! The store finds it through a second link, `gcroots/auto/HASH`, which points to the first. floe
//! makes both as Nix does (`addPermRoot`), so Nix's collectors honour them and remove a link that
//! points to nothing.
//!
//! A collector that has found a second link that points to nothing may remove it a moment later,
//! when a new root already has this name. The new root then gets another second link, whose name no
//! collector has seen. Any file in `gcroots/auto` counts as a root, whatever its name.

mod found;
mod links;
mod not_mounted;
mod process_use;
mod processes;
mod root_place;
mod root_records;
mod roots_daemon;
mod temporary;
mod unreadable;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use floe_format::{StorePath, nix32};
use floe_hash::{HashAlgorithm, Hasher};
use rustix::fs::{Access, access};

use crate::disk::{Directory, Entry, NewMode, StoreLayout};
use crate::error::{IoContext, StoreError};
use crate::events::{StoreEvent, StoreEvents};
pub(crate) use found::RootSearch;
pub use found::{FoundRoots, Root, RuntimeRoots};
pub(crate) use links::FailedRoots;
pub use links::StaleRegistration;
use not_mounted::{MissingRoot, RecordedRoots};
pub(crate) use root_place::Candidate;
pub use root_place::RootPlace;
pub use unreadable::{HiddenRoots, Unreadable};

/// A place for a root that passed [`IndirectGcRoot::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectGcRoot(PathBuf);

impl IndirectGcRoot {
    /// Checks whether a root can be created at `path`. Changes nothing.
    ///
    /// Errors: [`StoreError::RootInStore`]; [`StoreError::NotARoot`] if `path` exists and is not a
    /// link into the store; [`StoreError::CannotCreateRoot`] if this user cannot create a link
    /// there.
    pub fn check(layout: &StoreLayout, path: &Path) -> Result<IndirectGcRoot, StoreError> {
        let link = IndirectGcRoot(absolute_path(path)?);
        link.check_place(layout)?;
        match Directory::open_parent(&link.0) {
            Ok((directory, name)) => link.recheck(layout, &directory.entry(name))?,
            // The check below names the directory or file that prevents the link, if any does.
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
        check_can_create_link(&link.0)?;
        Ok(link)
    }

    /// Removes a root and its registration, unless the link has got another target than `path`. A
    /// collector would remove a registration without a link too. If the file system of the root is
    /// not mounted, the link there stays and keeps nothing.
    ///
    /// Errors: [`StoreError::RootChanged`], [`StoreError::ForeignLink`], and those of the system.
    pub fn remove(layout: &StoreLayout, link: &Path, path: &StorePath) -> Result<(), StoreError> {
        let link = absolute_path(link)?;
        let recorded = RecordedRoots::new(layout);
        if fs::symlink_metadata(&link).is_err()
            && let MissingRoot::NotMounted(record) = recorded.find_missing(&link)?
        {
            if record.path != *path {
                return Err(StoreError::RootChanged(link));
            }
            remove_registrations(layout, &link)?;
            return recorded.forget(&link);
        }
        let (directory, name) = Directory::open_parent(&link)?;
        let entry = directory.entry(name);
        let kept = match entry.read_link() {
            Ok(target) => root_place::store_path_of_target(&layout.store_dir, &target),
            // A file of `gcroots` that is named like the path.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                root_place::store_path_of_name(name.as_bytes())
            }
            Err(error) => return Err(error).io_context("examine the root", &link),
        };
        if kept.as_ref() != Some(path) {
            return Err(StoreError::RootChanged(link));
        }
        entry.remove().io_context("remove the root", &link)?;
        // Another user may own it.
        let _: Result<(), StoreError> = remove_registrations(layout, &link);
        // A collection removes a record that stays here.
        let _: Result<(), StoreError> = recorded.forget(&link);
        Ok(())
    }

    /// The absolute path of the link.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the link, for a root that a daemon registers. Replaces an existing link atomically.
    ///
    /// Errors: those of [`IndirectGcRoot::check`], and those of the system.
    pub fn write_link(&self, layout: &StoreLayout, path: &StorePath) -> Result<(), StoreError> {
        self.check_place(layout)?;
        let (directory, name) = Directory::create_parent(&self.0)?;
        let entry = directory.entry(name);
        self.recheck(layout, &entry)?;
        entry.replace_link(Path::new(&layout.store_dir.full_path(path)))
    }

    /// Returns the place of a root that another process has made, and its path. `None` if there is
    /// no link into the store, or none that this process can see.
    ///
    /// Errors: [`StoreError::UnusableRoot`] if this user may not read the link.
    pub(crate) fn existing(
        layout: &StoreLayout,
        link: &Path,
    ) -> Result<(IndirectGcRoot, Option<StorePath>), StoreError> {
        use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
        let link = absolute_path(link)?;
        let path = match fs::read_link(&link) {
            Ok(target) => root_place::store_path_of_target(&layout.store_dir, &target),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory | InvalidInput) => None,
            // A collection by root would stop there.
            Err(_) => {
                let reason = "the daemon may not read it; try another directory";
                return Err(StoreError::UnusableRoot(link, reason));
            }
        };
        Ok((IndirectGcRoot(link), path))
    }

    /// Makes the link and registers it as a root. A running collector has already read the
    /// permanent roots, so the caller must protect the path by a temporary root.
    pub(crate) fn register(
        &self,
        layout: &StoreLayout,
        path: &StorePath,
        events: &StoreEvents,
    ) -> Result<(), StoreError> {
        self.check_place(layout)?;
        let (directory, name) = Directory::create_parent(&self.0)?;
        let entry = directory.entry(name);
        self.recheck(layout, &entry)?;
        let was_missing = !entry.exists();
        entry.replace_link(Path::new(&layout.store_dir.full_path(path)))?;
        self.register_link(layout, Some(path), (was_missing, events))
    }

    /// Registers a link. `was_missing` tells whether it may be new to a running collector. The
    /// record of the root names `path`.
    pub(crate) fn register_link(
        &self,
        layout: &StoreLayout,
        path: Option<&StorePath>,
        (was_missing, events): (bool, &StoreEvents),
    ) -> Result<(), StoreError> {
        let auto = layout.state_dir.join(AUTO);
        let auto = Directory::open_or_create(&auto, NewMode::Shared)?;
        let name = auto_root_name(&self.0);
        let registration = auto.entry(&name);
        let may_be_removed = was_missing && registration.exists();
        registration.replace_link(&self.0)?;
        if may_be_removed {
            create_link_under_new_name(&self.0, &auto, &name)?;
        }
        // A collection keeps records whose registrations exist.
        if let Some(path) = path
            && let Err(error) = RecordedRoots::new(layout).update(&self.0, path)
        {
            let error = error.to_string();
            events.send(StoreEvent::RootNotRecorded { error });
        }
        Ok(())
    }

    /// Checks the place by its name alone.
    fn check_place(&self, layout: &StoreLayout) -> Result<(), StoreError> {
        let path = &self.0;
        if is_in_store(layout, path) || path.starts_with(&layout.real_store_dir) {
            Err(StoreError::RootInStore(path.clone()))
        } else {
            Ok(())
        }
    }

    /// Checks whether a link may replace the file at the place.
    fn recheck(&self, layout: &StoreLayout, entry: &Entry<'_>) -> Result<(), StoreError> {
        match read_existing_link(entry)? {
            ExistingLink::None => Ok(()),
            ExistingLink::To(target) if is_in_store(layout, &target) => Ok(()),
            _ => Err(StoreError::NotARoot(self.0.clone())),
        }
    }
}

/// The file at the place of a new link.
pub(crate) enum ExistingLink {
    None,
    To(PathBuf),
    NotALink,
}

pub(crate) fn read_existing_link(entry: &Entry<'_>) -> Result<ExistingLink, StoreError> {
    match entry.read_link() {
        Ok(target) => Ok(ExistingLink::To(target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ExistingLink::None),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(ExistingLink::NotALink),
        Err(error) => Err(error).io_context("examine", entry.path()),
    }
}

/// Removes all registrations of a root: a process may have made a second one, under a name that
/// begins with that of the first.
///
/// Errors: those of the system; there is no registration.
fn remove_registrations(layout: &StoreLayout, link: &Path) -> Result<(), StoreError> {
    let auto = Directory::open(&layout.state_dir.join(AUTO))?;
    let name = auto_root_name(link);
    let first = auto.entry(&name);
    let mut removed: io::Result<()> = Err(io::ErrorKind::NotFound.into());
    for (found, _) in auto.list().io_context("list", auto.path())? {
        let registration = auto.entry(&found);
        let is_of_link = found.as_bytes().starts_with(name.as_bytes())
            && registration.read_link().is_ok_and(|target| target == link);
        if is_of_link {
            registration
                .remove()
                .io_context("remove the registration", registration.path())?;
            removed = Ok(());
        }
    }
    removed.io_context("remove the registration", first.path())
}

/// Creates a link whose name begins with `prefix` and was not used before.
fn create_link_under_new_name(
    target: &Path,
    directory: &Directory,
    prefix: &OsStr,
) -> Result<(), StoreError> {
    loop {
        let number = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut name = prefix.to_owned();
        name.push(format!("-{}-{number}", std::process::id()));
        let link = directory.entry(&name);
        match link.create_link(target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.io_context("create the link", link.path()),
        }
    }
}

/// Returns the name under which Nix registers a link: the SHA-1 of its path.
fn auto_root_name(link: &Path) -> OsString {
    let mut hasher = Hasher::new(HashAlgorithm::Sha1);
    hasher.update(link.as_os_str().as_bytes());
    nix32::encode(&hasher.finish()).into()
}

/// Whether a path is below the store directory, by its name alone.
pub(crate) fn is_in_store(layout: &StoreLayout, path: &Path) -> bool {
    path.strip_prefix(layout.store_dir.as_str())
        .is_ok_and(|rest| rest.components().next().is_some())
}

/// Returns the path without `.` and `..`. A `..` removes the name before it, even if that name is a
/// symbolic link. Nix does the same, without access to the disk.
pub fn canon_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

/// Returns the target of a link in a directory, in Nix's form.
fn absolute_to(directory: &Path, target: &Path) -> PathBuf {
    canon_path(&directory.join(target))
}

/// Returns a path in Nix's form. The name of the root is a hash of it, so it must match Nix's.
pub(crate) fn absolute_path(path: &Path) -> Result<PathBuf, StoreError> {
    let path = std::path::absolute(path).io_context("resolve", path)?;
    Ok(canon_path(&path))
}

/// Checks whether a link can be created, so that a command fails before a long download.
pub(crate) fn check_can_create_link(link: &Path) -> Result<(), StoreError> {
    let Some(directory) = link.ancestors().skip(1).find(|path| path.exists()) else {
        return Ok(());
    };
    let usable = if directory.is_dir() {
        access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    };
    usable.map_err(|source| StoreError::CannotCreateRoot {
        path: link.to_path_buf(),
        directory: directory.to_path_buf(),
        source,
    })
}

/// The directory of registrations, in the state directory.
const AUTO: &str = "gcroots/auto";

/// Distinguishes the temporary names of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn auto_root_name_is_sha1_of_link_path() {
        // `sha1sum` printed this value. The tests with real Nix show that it looks for this name.
        let name = auto_root_name(Path::new("/a/b")).into_string().unwrap();
        assert_eq!(name.len(), 32);
        let known = nix32::decode(&name).unwrap();
        let known: String = known.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(known, "a51458f8d2c1fbd82e413e3ddd561e9462e8f61b");
    }

    #[test]
    fn new_name_is_never_that_of_an_existing_link() {
        let directory = tempfile::tempdir().unwrap();
        let links = || fs::read_dir(directory.path()).unwrap().count();
        let next = SERIAL.load(Ordering::Relaxed);
        for number in next..next + 20 {
            let name = format!("hash-{}-{number}", std::process::id());
            symlink("/elsewhere", directory.path().join(name)).unwrap();
        }
        let opened = Directory::open(directory.path()).unwrap();
        for count in 21..=23 {
            create_link_under_new_name(Path::new("/link"), &opened, "hash".as_ref()).unwrap();
            assert_eq!(links(), count);
        }
    }

    #[test]
    fn absolute_path_removes_dots_lexically() {
        for (text, plain) in [("/a/./b//c/", "/a/b/c"), ("/a/../b", "/b"), ("/../a", "/a")] {
            assert_eq!(
                absolute_path(Path::new(text)).unwrap(),
                Path::new(plain),
                "{text}"
            );
        }
    }
}
