//! Profiles: a link `P` to the current generation `P-N-link`, which is a GC root.
//!
//! Numbers, names and the lock are Nix's, so that `nix-env -p P` lists, switches and deletes the
//! generations that floe makes.

mod found;
mod generations;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;

use super::gc_roots::{
    ExistingLink, IndirectGcRoot, absolute_path, check_can_create_link, is_in_store,
    read_existing_link,
};
use crate::disk::{Directory, Entry, StoreLayout};
use crate::error::{IoContext, StoreError};
use crate::locks::{LockWait, PathLock};
pub use found::FoundProfiles;
pub use generations::{Generation, GenerationSpec, Generations};

/// The place of a profile.
#[derive(Clone, Debug)]
pub struct Profile {
    place: PathBuf,
    /// The directory of the place, if a search has opened it.
    opened: Option<Arc<Directory>>,
}

impl Profile {
    /// Returns the profile at a place, without a check. A link at the place is not followed.
    ///
    /// Errors: the working directory cannot be read.
    pub fn at(path: &Path) -> Result<Profile, StoreError> {
        let place = absolute_path(path)?;
        Ok(Profile {
            place,
            opened: None,
        })
    }

    /// Checks whether a generation can be added to the profile at `path`. Changes nothing.
    ///
    /// Nix would replace a link that points to another place, and thereby cut off the profile
    /// behind it. floe refuses such a link.
    ///
    /// Errors: [`StoreError::RootInStore`]; [`StoreError::NotAProfile`] if `path` exists and points
    /// neither to a generation in the same directory nor into the store;
    /// [`StoreError::CannotCreateRoot`] if this user cannot create a link there.
    pub fn check(layout: &StoreLayout, path: &Path) -> Result<Profile, StoreError> {
        let profile = Profile::at(path)?;
        // All generations are in the directory of the profile, so one check is enough.
        let first = profile.place.with_file_name(profile.generation_name(1));
        IndirectGcRoot::check(layout, &first)?;
        match profile.directory() {
            Ok(directory) => profile.recheck(layout, &directory)?,
            // The check below names the directory or file that prevents the link, if any does.
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
        check_can_create_link(&profile.place)?;
        Ok(profile)
    }

    /// The path of the profile.
    pub fn path(&self) -> &Path {
        &self.place
    }

    /// Makes a path the newest generation and switches to it. Returns the number of the generation.
    /// If the newest generation already is this path, no further one is made. Otherwise `add_root`
    /// makes the root of the new one.
    pub(crate) fn set(
        &self,
        layout: &StoreLayout,
        path: &StorePath,
        lock_wait: &LockWait,
        add_root: impl FnOnce(&IndirectGcRoot) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        let directory = Arc::new(Directory::create_parent(&self.place)?.0);
        let _lock = PathLock::acquire(&directory, self.name(), lock_wait)?;
        self.recheck(layout, &directory)?;
        let wanted = PathBuf::from(layout.store_dir.full_path(path));
        let latest = self.latest_generation(&directory)?;
        let is_there = |number: &u64| {
            let name = self.generation_name(*number);
            let link = directory.entry(&name);
            link.read_link().is_ok_and(|target| target == wanted)
        };
        let number = match latest.filter(is_there) {
            Some(number) => number,
            None => {
                let latest = latest.unwrap_or(0);
                let place = |number| self.place.with_file_name(self.generation_name(number));
                let number = latest + 1;
                if number > GENERATION_MAX {
                    return Err(StoreError::LastGeneration(place(latest)));
                }
                add_root(&IndirectGcRoot::check(layout, &place(number))?)?;
                number
            }
        };
        self.link_to(&directory, number)?;
        Ok(number)
    }

    fn name(&self) -> &OsStr {
        self.place.file_name().unwrap_or_default()
    }

    /// Opens the directory of the profile.
    fn directory(&self) -> Result<Arc<Directory>, StoreError> {
        match &self.opened {
            Some(opened) => Ok(opened.clone()),
            None => Ok(Arc::new(Directory::open_parent(&self.place)?.0)),
        }
    }

    /// The name of the link of a generation.
    fn generation_name(&self, number: u64) -> OsString {
        let mut name = self.name().to_owned();
        name.push(format!("-{number}-link"));
        name
    }

    /// Checks whether a generation may replace the file at the place of the profile.
    fn recheck(&self, layout: &StoreLayout, directory: &Directory) -> Result<(), StoreError> {
        let target = match read_existing_link(&directory.entry(self.name()))? {
            ExistingLink::None => return Ok(()),
            ExistingLink::NotALink => None,
            ExistingLink::To(target) => {
                let parent = target.parent().unwrap_or(&target);
                let is_beside = [Path::new(""), directory.path()].contains(&parent);
                let is_generation = is_beside && self.generation_number(&target).is_some();
                if is_generation || is_in_store(layout, &target) {
                    return Ok(());
                }
                Some(directory.path().join(target))
            }
        };
        let path = self.place.clone();
        Err(StoreError::NotAProfile { path, target })
    }

    /// Parses the number from the name of a generation of this profile. As in Nix, a number has 32
    /// bits.
    fn generation_number(&self, generation: &Path) -> Option<u64> {
        let name = generation.file_name()?.to_str()?;
        let rest = name.strip_prefix(self.name().to_str()?)?;
        let (number, _) = rest.strip_prefix('-')?.split_once("-link")?;
        number.parse::<u32>().ok().map(u64::from)
    }

    /// Returns the highest generation number.
    fn latest_generation(&self, directory: &Directory) -> Result<Option<u64>, StoreError> {
        let names = directory.list().io_context("list", directory.path())?;
        let numbers = names
            .iter()
            .filter_map(|(name, _)| self.generation_number(Path::new(name)));
        Ok(numbers.max())
    }

    /// Makes a generation the current one. The target of the link is a bare name, so that a
    /// directory of profiles can be moved.
    fn link_to(&self, directory: &Directory, number: u64) -> Result<(), StoreError> {
        let name = self.generation_name(number);
        let profile: Entry<'_> = directory.entry(self.name());
        profile.replace_link(Path::new(&name))
    }
}

/// The last number that nix-env lists.
const GENERATION_MAX: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_numbers_are_parsed_as_in_nix() {
        let profile = Profile::at(Path::new("/profiles/system")).unwrap();
        let number = |name: &str| profile.generation_number(Path::new(name));
        assert_eq!(number("system-7-link"), Some(7));
        assert_eq!(number("/elsewhere/system-12-link"), Some(12));
        // A crash leaves such a file; counting it keeps its number from being used twice.
        assert_eq!(number("system-7-link.tmp-1-2"), Some(7));
        for other in [
            "system",
            "system-7",
            "system-x-link",
            "systems-7-link",
            "s-7-link",
            "system-4294967296-link",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(profile.generation_name(7), "system-7-link");
    }
}
