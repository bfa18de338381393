//! The old generations of all profiles, as `nix-collect-garbage` deletes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use floe_store::{
    FoundProfiles, Generation, GenerationSpec, LockWait, Profile, StoreError, StoreLayout,
};

use super::super::profile::{parse_older_than, report_deleted};
use super::IgnoredLinks;
use crate::commands::gc::args::GcArgs;
use crate::default_profile::DefaultProfile;
use crate::display::warn;
use crate::options::{self, Settings};

/// The generations to delete, for each profile.
pub(super) struct OldGenerations {
    specs: Vec<GenerationSpec>,
    found: Vec<(Profile, Vec<Generation>)>,
}

impl OldGenerations {
    /// Finds the generations that the arguments choose, and warns of profiles that it skips.
    /// Changes nothing and takes no lock.
    pub(super) fn find(
        args: &GcArgs,
        layout: &StoreLayout,
        settings: &Settings,
    ) -> anyhow::Result<OldGenerations> {
        let mut specs = Vec::new();
        // As in Nix, the age decides if nix-collect-garbage gets both.
        if let Some(text) = &args.delete_older_than {
            specs.push(parse_older_than(text)?);
        } else if args.delete_old {
            specs.push(GenerationSpec::Old);
        }
        let count = args.keep_generations;
        specs.extend(count.map(|count| GenerationSpec::Keep(count.get() as u64)));
        let mut found = Vec::new();
        if specs.is_empty() {
            return Ok(OldGenerations { specs, found });
        }
        let mut profiles = profiles(args, layout, settings)?;
        for profile in profiles.own {
            match profile.find_deletable(&specs) {
                Ok(generations) if generations.is_empty() => {}
                Ok(generations) if generations.iter().all(|it| it.is_own) => {
                    found.push((profile, generations));
                }
                Ok(_) => profiles.foreign.push(profile.path().to_path_buf()),
                Err(error) => warn_of_skipped(&profile, &error),
            }
        }
        warn_of_foreign(&profiles.foreign);
        found.sort_by(|(a, _), (b, _)| a.path().cmp(b.path()));
        Ok(OldGenerations { specs, found })
    }

    /// Whether there is no generation to delete.
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The links of the generations.
    pub(super) fn links(&self) -> IgnoredLinks {
        let generations = self.found.iter().flat_map(|(_, generations)| generations);
        generations
            .map(|generation| generation.link.clone())
            .collect()
    }

    /// Deletes the generations that are still old, and keeps only these. A profile that cannot be
    /// locked or changed is skipped with a warning.
    pub(super) fn delete(&mut self, lock_wait: &LockWait) -> anyhow::Result<()> {
        for (profile, generations) in &mut self.found {
            generations.clear();
            match profile.delete(&self.specs, lock_wait) {
                Ok(deleted) => *generations = deleted,
                Err(StoreError::Interrupted) => bail!(StoreError::Interrupted),
                Err(error) => warn_of_skipped(profile, &error),
            }
        }
        Ok(())
    }

    /// Prints a line for each generation.
    pub(super) fn report(&self, dry_run: bool) {
        for (profile, generations) in &self.found {
            report_deleted(profile, generations, dry_run);
        }
    }
}

fn warn_of_skipped(profile: &Profile, error: &StoreError) {
    let profile = profile.path().display();
    warn(format_args!("skipping the profile {profile}: {error}"));
}

/// Warns of the profiles of other users, which a command leaves as they are.
fn warn_of_foreign(places: &[PathBuf]) {
    let Some(first) = places.first() else { return };
    let first = first.display();
    let are = match places.len() {
        1 => format!("{first}: it belongs"),
        count => format!("{count} profiles, such as {first}: they belong"),
    };
    warn(format_args!(
        "skipping {are} to another user; name a profile to change it, as in floe profile \
         wipe-history --profile {first}"
    ));
}

/// Returns the profiles of a store that this user may change: those in its state directory, and if
/// it is the store of the machine, those of the user.
fn profiles(
    args: &GcArgs,
    layout: &StoreLayout,
    settings: &Settings,
) -> anyhow::Result<FoundProfiles> {
    let mut directories = BTreeSet::from([layout.state_dir.join("profiles")]);
    let local = &args.store.local;
    if local.root.is_none() && local.store.is_none() {
        let state = options::environment().nix_state_home();
        directories.extend(state.map(|state| state.join("profiles")));
        let default = DefaultProfile::find(layout, settings).ok();
        let parent = default.and_then(|it| it.profile.path().parent().map(Path::to_path_buf));
        directories.extend(parent);
    }
    let mut profiles = FoundProfiles::default();
    for directory in directories {
        profiles.extend(Profile::find_below(&directory)?);
    }
    Ok(profiles)
}
