//! Profiles: a link `P` to the current generation `P-N-link`, which is a GC root.
//!
//! Numbers, names and the lock are Nix's, so that `nix-env -p P` lists, switches and deletes the
//! generations that floe makes.

mod generations;

use std::fs;
use std::path::{Path, PathBuf};

use floe_format::StorePath;

use crate::error::{IoContext, StoreError};
use crate::gc_roots::{
    ExistingLink, IndirectGcRoot, absolute_path, check_can_create_link, create_parent, is_in_store,
    read_existing_link, replace_link,
};
use crate::layout::StoreLayout;
use crate::locks::PathLock;
use crate::writer::StoreWriter;
pub use generations::{Generation, GenerationSpec, Generations};

/// A place for a profile that passed [`Profile::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile(PathBuf);

impl Profile {
    /// Checks whether a generation can be added to the profile at `path`. Changes nothing.
    ///
    /// Nix would replace a link that points to another place, and thereby cut off the profile
    /// behind it. floe refuses such a link.
    ///
    /// Errors: [`StoreError::RootInStore`]; [`StoreError::NotAProfile`] if `path` exists and points
    /// neither to a generation in the same directory nor into the store;
    /// [`StoreError::CannotCreateRoot`] if this user cannot create a link there.
    pub fn check(layout: &StoreLayout, path: &Path) -> Result<Profile, StoreError> {
        let profile = Profile(absolute_path(path)?);
        // All generations are in the directory of the profile, so one check is enough.
        IndirectGcRoot::check(layout, &profile.generation_link(1))?;
        profile.recheck(layout)?;
        check_can_create_link(&profile.0)?;
        Ok(profile)
    }

    /// The path of the link of a generation.
    fn generation_link(&self, number: u64) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(format!("-{number}-link"));
        name.into()
    }

    fn recheck(&self, layout: &StoreLayout) -> Result<(), StoreError> {
        let directory = self.0.parent().unwrap_or(Path::new("/"));
        let target = match read_existing_link(&self.0)? {
            ExistingLink::None => return Ok(()),
            ExistingLink::NotALink => None,
            ExistingLink::To(target) => {
                let parent = target.parent().unwrap_or(&target);
                let is_beside = [Path::new(""), directory].contains(&parent);
                let is_generation = is_beside && self.generation_number(&target).is_some();
                if is_generation || is_in_store(layout, &target) {
                    return Ok(());
                }
                Some(directory.join(target))
            }
        };
        let path = self.0.clone();
        Err(StoreError::NotAProfile { path, target })
    }

    /// Parses the number from the name of a generation of this profile.
    fn generation_number(&self, generation: &Path) -> Option<u64> {
        let name = generation.file_name()?.to_str()?;
        let rest = name.strip_prefix(self.0.file_name()?.to_str()?)?;
        let (number, _) = rest.strip_prefix('-')?.split_once("-link")?;
        number.parse().ok()
    }

    /// Returns the highest generation number.
    fn latest_generation(&self) -> Result<Option<u64>, StoreError> {
        let directory = self.0.parent().unwrap_or(Path::new("/"));
        let mut latest = None;
        for entry in fs::read_dir(directory).io_context("list", directory)? {
            let name = entry.io_context("list", directory)?.file_name();
            latest = latest.max(self.generation_number(Path::new(&name)));
        }
        Ok(latest)
    }
}

impl StoreWriter {
    /// Makes a path the newest generation of a profile and switches to it. Returns the number of
    /// the generation. If the newest generation already is this path, no further one is made.
    ///
    /// Errors: those of [`Profile::check`], [`StoreError::LockTimeout`], and those of the system.
    pub fn set_profile(&self, profile: &Profile, path: &StorePath) -> Result<u64, StoreError> {
        self.add_temp_roots([path].into_iter())?;
        create_parent(&profile.0)?;
        let _lock = PathLock::acquire(&profile.0, &self.lock_wait)?;
        profile.recheck(self.layout())?;
        let wanted = PathBuf::from(self.layout().store_dir.full_path(path));
        let latest = profile.latest_generation()?;
        let is_there = |number: &u64| {
            fs::read_link(profile.generation_link(*number)).is_ok_and(|target| target == wanted)
        };
        let number = match latest.filter(is_there) {
            Some(number) => number,
            None => {
                let latest = latest.unwrap_or(0);
                let number = latest.checked_add(1);
                let number = number
                    .ok_or_else(|| StoreError::LastGeneration(profile.generation_link(latest)))?;
                let link = IndirectGcRoot::check(self.layout(), &profile.generation_link(number))?;
                self.add_gc_root(&link, path)?;
                number
            }
        };
        // The target is a bare name, so that a directory of profiles can be moved.
        let generation = profile.generation_link(number);
        let name = generation.file_name().unwrap_or(generation.as_os_str());
        replace_link(Path::new(name), &profile.0)?;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_numbers_are_parsed_as_in_nix() {
        let profile = Profile("/profiles/system".into());
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
        ] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(
            profile.generation_link(7),
            Path::new("/profiles/system-7-link")
        );
    }
}
