//! The profiles in a directory, for commands that change all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::Profile;
use crate::disk::{Directory, is_trusted_owner};
use crate::error::{IoContext as _, StoreError};

/// The profiles that a search has found.
#[derive(Debug, Default)]
pub struct FoundProfiles {
    /// The profiles that this user may change and that root or this user owns.
    pub own: Vec<Profile>,
    /// The profiles of other users that this user may change. Their owners can exchange each file
    /// at any moment, so floe changes them only by name.
    pub foreign: Vec<PathBuf>,
}

impl Profile {
    /// Finds the profiles in a directory and in those below it that this user may change. Links to
    /// directories are not followed.
    ///
    /// Errors: those of the system. A directory that does not exist has no profile.
    pub fn find_below(directory: &Path) -> Result<FoundProfiles, StoreError> {
        let mut found = FoundProfiles::default();
        match Directory::open(directory) {
            Ok(directory) => found.visit(Arc::new(directory), 0)?,
            Err(error) if error.is_absent() => {}
            Err(StoreError::ForeignLink { path, .. }) => found.foreign.push(path),
            Err(error) => return Err(error),
        }
        Ok(found)
    }
}

impl FoundProfiles {
    /// Adds the profiles of another directory. One that both have is added once.
    pub fn extend(&mut self, other: FoundProfiles) {
        for profile in other.own {
            if !self.own.iter().any(|it| it.path() == profile.path()) {
                self.own.push(profile);
            }
        }
        for place in other.foreign {
            if !self.foreign.contains(&place) {
                self.foreign.push(place);
            }
        }
    }

    fn visit(&mut self, directory: Arc<Directory>, depth: usize) -> Result<(), StoreError> {
        let names = match directory.list() {
            // The owner of the directory above has exchanged it, or it is private.
            Err(error) if is_skipped(&error) => return Ok(()),
            names => names.io_context("list", directory.path())?,
        };
        let may_change = directory.may_change();
        let is_own = directory.owner().is_ok_and(is_trusted_owner);
        for (name, file_type) in names {
            if file_type == FileType::Directory && depth < DEPTH_MAX {
                match directory.subdirectory(&name) {
                    Ok(below) => self.visit(Arc::new(below), depth + 1)?,
                    Err(error) if is_skipped(&error) => {}
                    Err(error) => {
                        let place = directory.path().join(&name);
                        return Err(error).io_context("open", place);
                    }
                }
            }
            if file_type != FileType::Symlink || !may_change {
                continue;
            }
            let link = directory.entry(&name);
            let profile = Profile {
                place: link.path(),
                opened: Some(directory.clone()),
            };
            let is_generation = |target: PathBuf| profile.generation_number(&target).is_some();
            if !link.read_link().is_ok_and(is_generation) {
                continue;
            }
            let is_own_link = link.stat().is_ok_and(|it| is_trusted_owner(it.st_uid));
            if is_own && is_own_link {
                self.own.push(profile)
            } else {
                self.foreign.push(profile.place)
            }
        }
        Ok(())
    }
}

/// Whether a directory with this error has no profile that this user may change.
fn is_skipped(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_link || matches!(error.kind(), NotADirectory | NotFound | PermissionDenied)
}

/// The depth of directories that Nix and its users make is at most 2.
const DEPTH_MAX: usize = 64;
