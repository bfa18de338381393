//! The old generations of all profiles, as `nix-collect-garbage` deletes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use floe_store::{Generation, GenerationSpec, LockWait, Profile, StoreLayout};

use super::super::manage::profile::{default_profile, older_than_spec};
use super::IgnoredLinks;
use crate::args::GcArgs;
use crate::display::eprint_line;
use crate::exit::UsageError;
use crate::messages::manage as messages;
use crate::options::{self, Settings};

/// The generations to delete, for each profile.
pub(super) struct OldGenerations(Vec<(Profile, Vec<Generation>)>);

impl OldGenerations {
    /// Finds the generations that the arguments choose. Changes nothing.
    pub(super) fn find(
        args: &GcArgs,
        layout: &StoreLayout,
        settings: &Settings,
        lock_wait: &LockWait,
    ) -> anyhow::Result<OldGenerations> {
        let mut specs = Vec::new();
        if let Some(text) = &args.delete_older_than {
            match older_than_spec(text) {
                Some(spec) => specs.push(spec),
                None => bail!(UsageError(messages::not_a_time(text))),
            }
        }
        let count = args.keep_generations;
        specs.extend(count.map(|count| GenerationSpec::Keep(count.get() as u64)));
        let mut found = Vec::new();
        if specs.is_empty() {
            return Ok(OldGenerations(found));
        }
        for profile in profiles(args, layout, settings)? {
            let mut chosen: Option<Vec<Generation>> = None;
            for spec in &specs {
                let generations = profile.delete(spec, true, lock_wait)?;
                chosen = Some(match chosen {
                    None => generations,
                    Some(mut chosen) => {
                        chosen.retain(|generation| generations.contains(generation));
                        chosen
                    }
                });
            }
            found.push((profile, chosen.unwrap_or_default()));
        }
        found.retain(|(_, generations)| !generations.is_empty());
        Ok(OldGenerations(found))
    }

    /// The links of the generations.
    pub(super) fn links(&self) -> IgnoredLinks {
        let generations = self.0.iter().flat_map(|(_, generations)| generations);
        generations
            .map(|generation| generation.link.clone())
            .collect()
    }

    /// Deletes the generations.
    pub(super) fn delete(&self, lock_wait: &LockWait) -> anyhow::Result<()> {
        for (profile, generations) in &self.0 {
            let numbers = generations.iter().map(|generation| generation.number);
            profile.delete(
                &GenerationSpec::Numbers(numbers.collect()),
                false,
                lock_wait,
            )?;
        }
        Ok(())
    }

    /// Prints a line for each generation.
    pub(super) fn report(&self, dry_run: bool) {
        for (profile, generations) in &self.0 {
            for generation in generations {
                let number = generation.number;
                eprint_line(messages::deleted_generation(
                    profile.path(),
                    number,
                    dry_run,
                ));
            }
        }
    }
}

/// Returns the profiles of a store that this user may change: those in its state directory, and if
/// it is the store of the machine, those of the user.
fn profiles(
    args: &GcArgs,
    layout: &StoreLayout,
    settings: &Settings,
) -> anyhow::Result<Vec<Profile>> {
    let mut directories = BTreeSet::from([layout.state_dir.join("profiles")]);
    let local = &args.store.local;
    if local.root.is_none() && local.store.is_none() {
        let state = options::environment().nix_state_home();
        directories.extend(state.map(|state| state.join("profiles")));
        let default = default_profile(layout, settings).ok();
        let parent = default.and_then(|it| it.path().parent().map(Path::to_path_buf));
        directories.extend(parent);
    }
    let mut profiles = BTreeSet::<PathBuf>::new();
    for directory in directories {
        let found = Profile::find_below(&directory)?;
        profiles.extend(found.iter().map(|profile| profile.path().to_path_buf()));
    }
    let profiles = profiles.iter().map(|path| Ok(Profile::at(path)?));
    profiles.collect()
}
