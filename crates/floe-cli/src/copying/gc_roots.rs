//! Links that keep copied paths from being collected: `--out-link` and `--profile`.
//!
//! Their places are checked before anything is fetched. The links are made after all paths are
//! valid.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;
use floe_format::{StoreDir, StorePath};
use floe_store::{Generations, IndirectGcRoot, Profile, StoreLayout, StoreWriter};
use floe_transfer::{Error, PathSpec, StoreConfig, Target};

use super::TransferArgs;
use crate::default_profile::{self, DefaultProfile};
use crate::exit::UsageError;
use crate::options::Settings;

/// The links to make. The place of each was free, or held a link that it may replace.
#[derive(Debug, Default)]
pub(crate) struct GcRootLinks {
    links: Vec<IndirectGcRoot>,
    profile: Option<ProfileChange>,
}

/// A link or a profile that a command has changed.
#[derive(Debug)]
pub(crate) struct RootChange {
    /// A line that tells what was done.
    pub(crate) line: String,
    /// Whether the new path takes the place of another one in a profile.
    pub(crate) is_replacement: bool,
}

/// A profile that gets a generation.
#[derive(Debug)]
enum ProfileChange {
    Named(Profile),
    Default(DefaultProfile),
}

impl ProfileChange {
    fn profile(&self) -> &Profile {
        match self {
            ProfileChange::Named(profile) => profile,
            ProfileChange::Default(default) => &default.profile,
        }
    }
}

impl GcRootLinks {
    /// Checks the places of the links for a number of paths.
    ///
    /// Errors: a place that is taken, a target without garbage collection.
    pub(crate) fn check(
        args: &TransferArgs,
        settings: &Settings,
        target: &dyn StoreConfig,
        paths: usize,
    ) -> anyhow::Result<GcRootLinks> {
        let Some(layout) = target.facts().root_layout else {
            return match (&args.out_link, &args.profile) {
                (None, None) => Ok(GcRootLinks::default()),
                _ => bail!(UsageError(format!(
                    "cannot use --out-link or --profile: links on this machine keep nothing in \
                     {target}; leave them out, or copy to a local store"
                ))),
            };
        };
        if target.layout().is_none() && args.profile.is_some() {
            bail!(UsageError(format!(
                "cannot use --profile: floe makes no profiles through {target}; use --out-link, or \
                 add the path with nix-env -p PROFILE --set PATH"
            )));
        }
        let links = args.out_link.iter();
        let places = links.flat_map(|link| (0..paths).map(|number| numbered_link(link, number)));
        let links = places.map(|place| IndirectGcRoot::check(layout, &place));
        Ok(GcRootLinks {
            links: links.collect::<Result<_, _>>()?,
            profile: profile(args, settings, layout, paths)?,
        })
    }

    /// Whether there are links to make.
    pub(crate) fn are_requested(&self) -> bool {
        !self.links.is_empty() || self.profile.is_some()
    }

    /// Whether a link or the profile would change for these paths.
    pub(crate) fn would_change(&self, dir: &StoreDir, paths: &[PathSpec]) -> bool {
        let is_other = |place: Option<StorePath>, wanted: &PathSpec| {
            !place.is_some_and(|path| wanted.matches(&path))
        };
        let mut links = self.links.iter().zip(paths);
        let links_change = links.any(|(link, wanted)| {
            let target = fs::read_link(link.path()).ok();
            let path = target.and_then(|target| dir.to_store_path(target.to_str()?).ok());
            is_other(path, wanted)
        });
        let (Some(change), [wanted]) = (&self.profile, paths) else {
            return links_change;
        };
        let generations = change.profile().generations().unwrap_or_default();
        let mut all = generations.all.iter();
        let current = all.find(|it| Some(it.number) == generations.current);
        links_change || is_other(current.and_then(|it| it.store_path(dir)), wanted)
    }

    /// Returns the links that were made, with their paths.
    pub(crate) fn made(&self, paths: &[StorePath]) -> Vec<(PathBuf, StorePath)> {
        let links = self.links.iter().map(|link| link.path().to_path_buf());
        links.zip(paths.iter().cloned()).collect()
    }

    /// Makes the links into a store behind a daemon, which registers them as roots. Returns the
    /// links whose targets changed.
    ///
    /// Errors: [`Error::Vanished`] if a collection has deleted a path before it had its root.
    pub(crate) fn create_at(
        &self,
        (target, layout): (&dyn Target, &StoreLayout),
        paths: &[StorePath],
    ) -> Result<Vec<RootChange>, Error> {
        let mut changes = Vec::new();
        for (link, path) in self.links.iter().zip(paths) {
            changes.extend(link_change(link, &layout.store_dir, path));
            link.write_link(layout, path)?;
            let registry = target.as_root_registry();
            let registry = registry.ok_or(Error::Internal("this target registers no roots"))?;
            registry.add_indirect_root(link.path(), path)?;
        }
        Ok(changes)
    }

    /// Makes the links, in the order in which the paths were requested. Returns the links
    /// whose targets changed, and the profile if it changed.
    pub(crate) fn create(
        &self,
        store: &StoreWriter,
        paths: &[StorePath],
    ) -> anyhow::Result<Vec<RootChange>> {
        let mut changes = Vec::new();
        for (link, path) in self.links.iter().zip(paths) {
            changes.extend(link_change(link, &store.layout().store_dir, path));
            store.add_gc_root(link, path)?;
        }
        if let (Some(change), [path]) = (&self.profile, paths) {
            let profile = change.profile();
            // Only for the report: a new profile has no directory yet.
            let before = profile.generations().unwrap_or_default();
            let number = store.set_profile(profile, path)?;
            if let ProfileChange::Default(default) = change {
                default.make_link()?;
            }
            let dir = &store.layout().store_dir;
            changes.extend(generation_change(profile, (&before, number), (dir, path)));
        }
        Ok(changes)
    }
}

/// Returns the change of a link that is about to lead to a path.
fn link_change(link: &IndirectGcRoot, dir: &StoreDir, path: &StorePath) -> Option<RootChange> {
    let path = dir.full_path(path);
    let target = fs::read_link(link.path());
    let is_made = target.is_ok_and(|target| target == Path::new(&path));
    (!is_made).then(|| RootChange {
        line: format!("made the link {} to {path}", link.path().display()),
        is_replacement: false,
    })
}

/// Returns the change of a profile that had some generations and is at another one now.
fn generation_change(
    profile: &Profile,
    (before, now): (&Generations, u64),
    (dir, path): (&StoreDir, &StorePath),
) -> Option<RootChange> {
    if before.current == Some(now) {
        return None;
    }
    let verb = if before.all.iter().any(|it| it.number == now) {
        "switched to"
    } else {
        "made"
    };
    let mut line = format!("{verb} generation {now} of {}", profile.path().display());
    let mut all = before.all.iter();
    let replaced = all.find(|it| Some(it.number) == before.current);
    let replaced = replaced.filter(|it| it.store_path(dir).as_ref() != Some(path));
    if let Some(replaced) = replaced {
        let name = match replaced.store_path(dir) {
            Some(path) => path.name().to_owned(),
            None => replaced.target.display().to_string(),
        };
        line += &format!(
            ", which takes the place of generation {} with {name}",
            replaced.number
        );
    }
    Some(RootChange {
        line,
        is_replacement: replaced.is_some(),
    })
}

fn profile(
    args: &TransferArgs,
    settings: &Settings,
    layout: &StoreLayout,
    paths: usize,
) -> anyhow::Result<Option<ProfileChange>> {
    match (&args.profile, paths) {
        (None, _) => Ok(None),
        (Some(Some(place)), 1) if !is_default(place, settings) => {
            Ok(Some(ProfileChange::Named(Profile::check(layout, place)?)))
        }
        (Some(_), 1) => {
            let default = DefaultProfile::find(layout, settings)?;
            default.check(layout)?;
            Ok(Some(ProfileChange::Default(default)))
        }
        (Some(_), _) => bail!(UsageError(format!(
            "cannot set a profile to {paths} paths: it takes one; merge them into one path, or use \
             --out-link"
        ))),
    }
}

/// Whether a place is that of the link to the default profile.
fn is_default(place: &Path, settings: &Settings) -> bool {
    let place = std::path::absolute(place).ok();
    place.is_some() && place == default_profile::link(settings)
}

/// Returns the name of a link as Nix chooses it: the first one has no number.
fn numbered_link(link: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return link.to_path_buf();
    }
    let mut name = OsString::from(link);
    name.push(format!("-{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use floe_config::{Config, Environment, ProcessUser};
    use floe_copy::resolve_store_uri;
    use floe_transfer::UriContext;

    use super::*;

    #[track_caller]
    fn check(target: &str, args: &TransferArgs, paths: usize, expected: &Expect) {
        let target = resolve_store_uri(target, &UriContext::default()).unwrap();
        let environment = Environment::new([], ProcessUser::current());
        let settings = Settings {
            config: Config::load(&environment, &[]).unwrap(),
            context: UriContext::default(),
        };
        let error = GcRootLinks::check(args, &settings, &*target, paths).unwrap_err();
        expected.assert_eq(&error.to_string());
    }

    #[test]
    fn unusable_links_are_refused() {
        let link = TransferArgs {
            out_link: Some("result".into()),
            ..TransferArgs::default()
        };
        check(
            "file:///cache",
            &link,
            1,
            &expect![
                "cannot use --out-link or --profile: links on this machine keep nothing in file:///cache; leave them out, or copy to a local store"
            ],
        );
        let profile = TransferArgs {
            profile: Some(Some("profile".into())),
            ..TransferArgs::default()
        };
        check(
            "local?root=/absent",
            &profile,
            2,
            &expect![
                "cannot set a profile to 2 paths: it takes one; merge them into one path, or use --out-link"
            ],
        );
    }
}
