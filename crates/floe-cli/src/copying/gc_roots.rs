//! Links that keep copied paths from being collected: `--out-link` and `--profile`.
//!
//! Their places are checked before anything is fetched. The links are made after all paths are
//! valid.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::bail;
use floe_format::StorePath;
use floe_store::{IndirectGcRoot, Profile, StoreLayout, StoreWriter};
use floe_transfer::{Error, StoreConfig, Target};

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

/// A profile that gets a generation.
#[derive(Debug)]
enum ProfileChange {
    Named(Profile),
    Default(DefaultProfile),
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

    /// Returns the links that were made, with their paths.
    pub(crate) fn made(&self, paths: &[StorePath]) -> Vec<(PathBuf, StorePath)> {
        let links = self.links.iter().map(|link| link.path().to_path_buf());
        links.zip(paths.iter().cloned()).collect()
    }

    /// Makes the links into a store behind a daemon, which registers them as roots.
    ///
    /// Errors: [`Error::Vanished`] if a collection has deleted a path before it had its root.
    pub(crate) fn create_at(
        &self,
        (target, layout): (&dyn Target, &StoreLayout),
        paths: &[StorePath],
    ) -> Result<(), Error> {
        for (link, path) in self.links.iter().zip(paths) {
            link.write_link(layout, path)?;
            let registry = target.as_root_registry();
            let registry = registry.ok_or(Error::Internal("this target registers no roots"))?;
            registry.add_indirect_root(link.path(), path)?;
        }
        Ok(())
    }

    /// Makes the links, in the order in which the paths were requested.
    pub(crate) fn create(&self, store: &StoreWriter, paths: &[StorePath]) -> anyhow::Result<()> {
        for (link, path) in self.links.iter().zip(paths) {
            store.add_gc_root(link, path)?;
        }
        if let (Some(profile), [path]) = (&self.profile, paths) {
            match profile {
                ProfileChange::Named(profile) => store.set_profile(profile, path)?,
                ProfileChange::Default(default) => {
                    let generation = store.set_profile(&default.profile, path)?;
                    default.make_link()?;
                    generation
                }
            };
        }
        Ok(())
    }
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
            Profile::check(layout, default.profile.path())?;
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
