//! The generations of a profile: list, switch, delete. The rules are Nix's (profiles.cc).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use floe_format::{StoreDir, StorePath};
use rustix::fs::{Access, access};

use super::Profile;
use crate::error::{IoContext, StoreError, is_not_found};
use crate::gc_roots::{IndirectGcRoot, absolute_path, replace_link};
use crate::layout::StoreLayout;
use crate::locks::{LockWait, PathLock};

/// A generation of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its number.
    pub number: u64,
    /// Its link, which is a GC root.
    pub link: PathBuf,
    /// The target of the link.
    pub target: PathBuf,
    /// When the link was made.
    pub created: SystemTime,
}

impl Generation {
    /// Returns the store path of the generation, if its link leads into the store.
    pub fn store_path(&self, dir: &StoreDir) -> Option<StorePath> {
        dir.to_store_path(self.target.to_str()?).ok()
    }
}

/// The generations of a profile, oldest number first, and the number of the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    /// The generations.
    pub all: Vec<Generation>,
    /// The number of the current one, if the profile names a generation.
    pub current: Option<u64>,
}

/// The generations to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenerationSpec {
    /// All except the current one.
    Old,
    /// Those that were not current at this time, nor later.
    OlderThan(SystemTime),
    /// All that are older than the current one, except for the newest of these: with the current
    /// one, this many stay.
    Keep(u64),
    /// These.
    Numbers(BTreeSet<u64>),
}

impl Profile {
    /// Returns the profile at a place, without a check. A link at the place is not followed.
    ///
    /// Errors: the working directory cannot be read.
    pub fn at(path: &Path) -> Result<Profile, StoreError> {
        absolute_path(path).map(Profile)
    }

    /// Returns the profiles in a directory and in those below it that this user may change. Links
    /// to directories are not followed.
    ///
    /// Errors: those of the system. A directory that does not exist has no profile.
    pub fn find_below(directory: &Path) -> Result<Vec<Profile>, StoreError> {
        let mut profiles = Vec::new();
        let mut todo = vec![directory.to_path_buf()];
        while let Some(directory) = todo.pop() {
            let entries = fs::read_dir(&directory);
            if is_not_found(&entries) {
                continue;
            }
            let may_change = access(&directory, Access::WRITE_OK | Access::EXEC_OK).is_ok();
            for entry in entries.io_context("list", &directory)? {
                let entry = entry.io_context("list", &directory)?;
                let path = entry.path();
                let kind = entry.file_type().io_context("examine", &path)?;
                let profile = Profile(path.clone());
                if kind.is_dir() {
                    todo.push(path);
                } else if may_change
                    && fs::read_link(&path)
                        .is_ok_and(|target| profile.generation_number(&target).is_some())
                {
                    profiles.push(profile);
                }
            }
        }
        Ok(profiles)
    }

    /// The path of the profile.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lists the generations.
    ///
    /// Errors: [`StoreError::NoProfile`] if there is neither a profile nor a generation, and those
    /// of the system.
    pub fn generations(&self) -> Result<Generations, StoreError> {
        let directory = self.0.parent().unwrap_or(Path::new("/"));
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NoProfile(self.0.clone()));
            }
            entries => entries.io_context("list", directory)?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.io_context("list", directory)?;
            all.extend(self.generation(&entry.path())?);
        }
        all.sort_unstable_by_key(|generation| generation.number);
        let current = fs::read_link(&self.0).ok();
        if all.is_empty() && current.is_none() {
            return Err(StoreError::NoProfile(self.0.clone()));
        }
        let current = current.and_then(|target| self.generation_number(&target));
        Ok(Generations { all, current })
    }

    /// Returns the generation with this link, if the name is that of one.
    fn generation(&self, link: &Path) -> Result<Option<Generation>, StoreError> {
        let Some(number) = self.generation_number(link) else {
            return Ok(None);
        };
        if link != self.generation_link(number) {
            return Ok(None);
        }
        let found = fs::symlink_metadata(link)
            .and_then(|metadata| Ok((fs::read_link(link)?, metadata.modified()?)));
        match found {
            Ok((target, created)) => Ok(Some(Generation {
                number,
                link: link.to_path_buf(),
                target,
                created,
            })),
            // Another process has deleted it, or it is no link.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).io_context("examine", link),
        }
    }

    /// Switches to a generation, or to the one before the current one. Returns the number before
    /// and the number now.
    ///
    /// Errors: [`StoreError::NoGeneration`], [`StoreError::NoProfile`],
    /// [`StoreError::LockTimeout`], and those of the system.
    pub fn switch(
        &self,
        number: Option<u64>,
        lock_wait: &LockWait,
    ) -> Result<(Option<u64>, u64), StoreError> {
        let _lock = PathLock::acquire(&self.0, lock_wait)?;
        let Generations { all, current } = self.generations()?;
        let numbers = || all.iter().map(|generation| generation.number);
        let chosen = match number {
            Some(wanted) => numbers().find(|number| *number == wanted),
            None => numbers().rfind(|number| current.is_none_or(|current| *number < current)),
        };
        let chosen = chosen.ok_or_else(|| StoreError::NoGeneration {
            profile: self.0.clone(),
            wanted: number,
            current,
        })?;
        let link = self.generation_link(chosen);
        let name = link.file_name().unwrap_or(link.as_os_str());
        replace_link(Path::new(name), &self.0)?;
        Ok((current, chosen))
    }

    /// Deletes generations, or only tells which, and returns them. The current one always stays.
    ///
    /// Errors: [`StoreError::CurrentGeneration`] and [`StoreError::NoGeneration`] if a number names
    /// the current one or none, [`StoreError::NoProfile`], [`StoreError::LockTimeout`], and those
    /// of the system.
    pub fn delete(
        &self,
        spec: &GenerationSpec,
        dry_run: bool,
        lock_wait: &LockWait,
    ) -> Result<Vec<Generation>, StoreError> {
        let _lock = PathLock::acquire(&self.0, lock_wait)?;
        let generations = self.generations()?;
        let chosen = self.choose(&generations, spec)?;
        for generation in chosen.iter().filter(|_| !dry_run) {
            let removed = fs::remove_file(&generation.link);
            removed.io_context("delete the generation", &generation.link)?;
        }
        Ok(chosen)
    }

    /// Removes the profile with its only generation.
    ///
    /// Errors: [`StoreError::LockTimeout`], and those of the system.
    pub fn remove(&self, layout: &StoreLayout, lock_wait: &LockWait) -> Result<(), StoreError> {
        let _lock = PathLock::acquire(&self.0, lock_wait)?;
        let generations = self.generations()?.all;
        fs::remove_file(&self.0).io_context("remove the profile", &self.0)?;
        for generation in generations {
            IndirectGcRoot::remove(layout, &generation.link)?;
        }
        Ok(())
    }

    fn choose(
        &self,
        generations: &Generations,
        spec: &GenerationSpec,
    ) -> Result<Vec<Generation>, StoreError> {
        let Generations { all, current } = generations;
        let is_current = |number: u64| *current == Some(number);
        let chosen: BTreeSet<u64> = match spec {
            GenerationSpec::Numbers(numbers) => {
                for number in numbers {
                    self.check_deletable(generations, *number)?;
                }
                numbers.clone()
            }
            GenerationSpec::Old => all.iter().map(|it| it.number).collect(),
            GenerationSpec::OlderThan(time) => {
                let older = all.iter().rev().skip_while(|it| it.created >= *time);
                // The first of them was current at that time.
                older.skip(1).map(|it| it.number).collect()
            }
            GenerationSpec::Keep(count) => {
                let from_current = all.iter().rev().skip_while(|it| !is_current(it.number));
                let count = usize::try_from((*count).max(1)).unwrap_or(usize::MAX);
                from_current.skip(count).map(|it| it.number).collect()
            }
        };
        let is_chosen = |it: &&Generation| chosen.contains(&it.number) && !is_current(it.number);
        Ok(all.iter().filter(is_chosen).cloned().collect())
    }

    fn check_deletable(&self, generations: &Generations, number: u64) -> Result<(), StoreError> {
        if generations.current == Some(number) {
            return Err(StoreError::CurrentGeneration {
                profile: self.0.clone(),
                number,
            });
        }
        match generations.all.iter().any(|it| it.number == number) {
            true => Ok(()),
            false => Err(StoreError::NoGeneration {
                profile: self.0.clone(),
                wanted: Some(number),
                current: generations.current,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn generations(count: u64, current: u64) -> Generations {
        let generation = |number: u64| Generation {
            number,
            link: format!("/p-{number}-link").into(),
            target: "/nix/store/x".into(),
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(number * 100),
        };
        Generations {
            all: (1..=count).map(generation).collect(),
            current: Some(current),
        }
    }

    fn chosen(spec: &GenerationSpec) -> Result<Vec<u64>, StoreError> {
        let profile = Profile("/p".into());
        let chosen = profile.choose(&generations(6, 4), spec)?;
        Ok(chosen.into_iter().map(|it| it.number).collect())
    }

    #[test]
    fn specs_choose_as_nix_env_does() {
        let older = |seconds| {
            GenerationSpec::OlderThan(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert_eq!(chosen(&GenerationSpec::Old).unwrap(), [1, 2, 3, 5, 6]);
        assert_eq!(chosen(&older(350)).unwrap(), [1, 2]);
        // Generation 4 is current.
        assert_eq!(chosen(&older(650)).unwrap(), [1, 2, 3, 5]);
        assert_eq!(chosen(&older(100)).unwrap(), [0; 0]);
        assert_eq!(chosen(&GenerationSpec::Keep(1)).unwrap(), [1, 2, 3]);
        assert_eq!(chosen(&GenerationSpec::Keep(3)).unwrap(), [1]);
        let numbers = |numbers: &[u64]| GenerationSpec::Numbers(numbers.iter().copied().collect());
        assert_eq!(chosen(&numbers(&[2, 6])).unwrap(), [2, 6]);
        assert!(matches!(
            chosen(&numbers(&[2, 4])),
            Err(StoreError::CurrentGeneration { number: 4, .. })
        ));
        assert!(matches!(
            chosen(&numbers(&[9])),
            Err(StoreError::NoGeneration {
                wanted: Some(9),
                ..
            })
        ));
    }
}
