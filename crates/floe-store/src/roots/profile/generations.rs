//! The generations of a profile: list, switch, delete. The rules are Nix's (profiles.cc).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use floe_format::{StoreDir, StorePath};

use super::Profile;
use crate::disk::{Directory, StoreLayout, is_trusted_owner};
use crate::error::{IoContext, StoreError};
use crate::locks::{LockWait, PathLock};
use crate::roots::gc_roots::IndirectGcRoot;

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
    /// Whether root or this user owns the link.
    pub is_own: bool,
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

impl Generations {
    /// Returns the generation with a number, or the one before the current one.
    pub fn target(&self, number: Option<u64>) -> Option<&Generation> {
        match number {
            Some(wanted) => self.all.iter().find(|it| it.number == wanted),
            None => {
                let is_before = |it: &&Generation| self.current.is_none_or(|now| it.number < now);
                self.all.iter().rfind(is_before)
            }
        }
    }
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
    /// Lists the generations.
    ///
    /// Errors: [`StoreError::NoProfile`], and those of the system.
    pub fn generations(&self) -> Result<Generations, StoreError> {
        self.generations_in(&*self.existing_directory()?)
    }

    fn generations_in(&self, directory: &Directory) -> Result<Generations, StoreError> {
        let mut all = Vec::new();
        for (name, _) in directory.list().io_context("list", directory.path())? {
            all.extend(self.generation(directory, &name)?);
        }
        all.sort_unstable_by_key(|generation| generation.number);
        let current = directory.entry(self.name()).read_link().ok();
        if all.is_empty() {
            return Err(StoreError::NoProfile {
                path: self.place.clone(),
                target: current,
            });
        }
        let current = current.and_then(|target| self.generation_number(&target));
        Ok(Generations { all, current })
    }

    /// Returns the generation with this link, if the name is that of one.
    fn generation(
        &self,
        directory: &Directory,
        name: &OsStr,
    ) -> Result<Option<Generation>, StoreError> {
        let Some(number) = self.generation_number(Path::new(name)) else {
            return Ok(None);
        };
        if name != self.generation_name(number) {
            return Ok(None);
        }
        let link = directory.entry(name);
        match link.stat().and_then(|found| Ok((link.read_link()?, found))) {
            Ok((target, found)) => Ok(Some(Generation {
                number,
                link: link.path(),
                target,
                created: time(found.st_mtime, found.st_mtime_nsec),
                is_own: is_trusted_owner(found.st_uid),
            })),
            // Another process has deleted it, or it is not a link.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).io_context("examine", link.path()),
        }
    }

    /// Switches to a generation, or to the one before the current one. `check` may refuse the
    /// chosen one. Returns the number before and the number now.
    ///
    /// Errors: [`StoreError::NoGeneration`], [`StoreError::NoProfile`],
    /// [`StoreError::NotAProfile`], [`StoreError::LockTimeout`], those of `check`, and those of the
    /// system.
    pub fn switch<E: From<StoreError>>(
        &self,
        layout: &StoreLayout,
        number: Option<u64>,
        lock_wait: &LockWait,
        check: impl FnOnce(&Generation) -> Result<(), E>,
    ) -> Result<(Option<u64>, u64), E> {
        let directory = self.existing_directory()?;
        let _lock = PathLock::acquire(&directory, self.name(), lock_wait)?;
        let generations = self.generations_in(&directory)?;
        let current = generations.current;
        let chosen = generations
            .target(number)
            .ok_or_else(|| StoreError::NoGeneration {
                profile: self.place.clone(),
                wanted: number,
                current,
            })?;
        self.recheck(layout, &directory)?;
        check(chosen)?;
        self.link_to(&directory, chosen.number)?;
        Ok((current, chosen.number))
    }

    /// Returns the generations that [`Profile::delete`] would delete. Changes nothing and takes no
    /// lock.
    ///
    /// Errors: those of [`Profile::delete`].
    pub fn find_deletable(&self, specs: &[GenerationSpec]) -> Result<Vec<Generation>, StoreError> {
        self.choose(&self.generations()?, specs)
    }

    /// Deletes the generations that all of the specs choose, and returns them. The current one
    /// always stays.
    ///
    /// Errors: [`StoreError::CurrentGeneration`] and [`StoreError::NoGeneration`] if a number names
    /// the current one or none, [`StoreError::NoProfile`], [`StoreError::LockTimeout`], and those
    /// of the system.
    pub fn delete(
        &self,
        specs: &[GenerationSpec],
        lock_wait: &LockWait,
    ) -> Result<Vec<Generation>, StoreError> {
        let directory = self.existing_directory()?;
        let _lock = PathLock::acquire(&directory, self.name(), lock_wait)?;
        let chosen = self.choose(&self.generations_in(&directory)?, specs)?;
        for generation in &chosen {
            let name = self.generation_name(generation.number);
            let removed = directory.entry(&name).remove();
            removed.io_context("delete the generation", &generation.link)?;
        }
        Ok(chosen)
    }

    /// Removes the profile with its only generation, which keeps `path`.
    ///
    /// Errors: [`StoreError::CurrentGeneration`] if it has several by now,
    /// [`StoreError::RootChanged`], [`StoreError::LockTimeout`], and those of the system.
    pub fn remove(
        &self,
        layout: &StoreLayout,
        path: &StorePath,
        lock_wait: &LockWait,
    ) -> Result<(), StoreError> {
        let directory = self.existing_directory()?;
        let _lock = PathLock::acquire(&directory, self.name(), lock_wait)?;
        let Generations { all, current } = self.generations_in(&directory)?;
        let [generation] = &*all else {
            return Err(StoreError::CurrentGeneration {
                profile: self.place.clone(),
                number: current.unwrap_or_default(),
            });
        };
        if generation.store_path(&layout.store_dir).as_ref() != Some(path) {
            return Err(StoreError::RootChanged(generation.link.clone()));
        }
        let removed = directory.entry(self.name()).remove();
        removed.io_context("remove the profile", &self.place)?;
        IndirectGcRoot::remove(layout, &generation.link, path)
    }

    fn existing_directory(&self) -> Result<Arc<Directory>, StoreError> {
        match self.directory() {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::NoProfile {
                    path: self.place.clone(),
                    target: None,
                })
            }
            directory => directory,
        }
    }

    /// Returns the generations that all of the specs choose.
    fn choose(
        &self,
        generations: &Generations,
        specs: &[GenerationSpec],
    ) -> Result<Vec<Generation>, StoreError> {
        let Some((first, others)) = specs.split_first() else {
            return Ok(Vec::new());
        };
        let mut chosen = self.choose_by(generations, first)?;
        for spec in others {
            let also = self.choose_by(generations, spec)?;
            chosen.retain(|generation| also.contains(generation));
        }
        Ok(chosen)
    }

    fn choose_by(
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
                profile: self.place.clone(),
                number,
            });
        }
        if generations.all.iter().any(|it| it.number == number) {
            Ok(())
        } else {
            Err(StoreError::NoGeneration {
                profile: self.place.clone(),
                wanted: Some(number),
                current: generations.current,
            })
        }
    }
}

/// The time of a file, which may be before 1970.
fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let nanoseconds = Duration::from_nanos(nanoseconds);
    let since = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    let exact = whole.and_then(|whole| whole.checked_add(nanoseconds));
    exact.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generations(count: u64, current: u64) -> Generations {
        let generation = |number: u64| Generation {
            number,
            link: format!("/p-{number}-link").into(),
            target: "/nix/store/x".into(),
            created: SystemTime::UNIX_EPOCH + Duration::from_secs(number * 100),
            is_own: true,
        };
        Generations {
            all: (1..=count).map(generation).collect(),
            current: Some(current),
        }
    }

    fn chosen(spec: &GenerationSpec) -> Result<Vec<u64>, StoreError> {
        let profile = Profile::at(Path::new("/p")).unwrap();
        let chosen = profile.choose_by(&generations(6, 4), spec)?;
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
