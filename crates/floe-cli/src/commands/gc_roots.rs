//! Links that keep what was moved: `--out-link` and `--profile`.
//!
//! Where they are to be is looked at before anything is fetched, and they are made when all has
//! arrived.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use floe_engine::StoreUri;
use floe_format::StorePath;
use floe_store::{IndirectGcRoot, Profile, StoreLayout, StoreWriter};

use crate::args::GcRootArgs;
use crate::exit::UsageError;

/// The links to be, each in a place that was free.
#[derive(Debug, Default)]
pub(crate) struct GcRootLinks {
    links: Vec<IndirectGcRoot>,
    profile: Option<Profile>,
}

impl GcRootLinks {
    /// Looks at the places of links for so many roots.
    pub(crate) fn check(
        args: &GcRootArgs,
        target: &StoreUri,
        roots: usize,
    ) -> anyhow::Result<GcRootLinks> {
        let layout = match target {
            StoreUri::Local(store) => &store.layout,
            _ if args.out_link.is_none() && args.profile.is_none() => {
                return Ok(GcRootLinks::default());
            }
            _ => return Err(UsageError(NOT_FOR_CACHES.into()).into()),
        };
        let places = args.out_link.iter().flat_map(|link| {
            let place = |number| numbered_link(link, number);
            (0..roots).map(place)
        });
        let links = places.map(|place| IndirectGcRoot::check(layout, &place));
        Ok(GcRootLinks {
            links: links.collect::<Result<_, _>>()?,
            profile: profile(args, layout, roots)?,
        })
    }

    /// Makes the links, in the order in which the roots were named.
    pub(crate) fn create(&self, store: &StoreWriter, roots: &[StorePath]) -> anyhow::Result<()> {
        for (link, root) in self.links.iter().zip(roots) {
            store.add_gc_root(link, root)?;
        }
        if let (Some(profile), [root]) = (&self.profile, roots) {
            store.set_profile(profile, root)?;
        }
        Ok(())
    }
}

fn profile(
    args: &GcRootArgs,
    layout: &StoreLayout,
    roots: usize,
) -> anyhow::Result<Option<Profile>> {
    match (&args.profile, roots) {
        (None, _) => Ok(None),
        (Some(place), 1) => Ok(Some(Profile::check(layout, place)?)),
        (Some(_), _) => Err(UsageError(format!(
            "a profile has one path, and {roots} were named; merge them into one, or use --out-link"
        ))
        .into()),
    }
}

/// Nix's names: the first link has no number.
fn numbered_link(link: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return link.to_path_buf();
    }
    let mut name = OsString::from(link);
    name.push(format!("-{number}"));
    name.into()
}

/// Caches have no collector, and so no roots.
const NOT_FOR_CACHES: &str = "--out-link and --profile link to paths in a local store, and the \
                              target is a binary cache";
