//! The commands that show and change what a store keeps: `floe roots`, `list`, `uninstall` and
//! `profile`.

pub(crate) mod list;
pub(crate) mod page;
pub(crate) mod profile;
pub(crate) mod roots;
pub(crate) mod uninstall;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use floe_store::{
    FoundRoots, Profile, RootPlace, StaleRegistration, StoreLayout, StoreReader, Unreadable,
};
use floe_transfer::StoreConfig;

use crate::args::StoreQueryArgs;
use crate::display::warn;
use crate::exit::UsageError;
use crate::messages::manage as messages;
use crate::messages::skipped_rows;
use crate::options::{self, Settings};

/// Opens the local store of the arguments for reading.
fn open_store(args: &StoreQueryArgs) -> anyhow::Result<StoreReader> {
    let settings = Settings::load(&args.options, None)?;
    let (_, layout) = local_store(args, &settings)?;
    let lock_wait = options::lock_wait(Default::default());
    Ok(StoreReader::open_with(layout, lock_wait)?)
}

/// Opens the local store of the arguments, and finds all its roots.
fn open_and_find_roots(args: &StoreQueryArgs) -> anyhow::Result<(StoreReader, FoundRoots)> {
    let settings = Settings::load(&args.options, None)?;
    let (config, layout) = local_store(args, &settings)?;
    let lock_wait = options::lock_wait(Default::default());
    let store = StoreReader::open_with(layout, lock_wait)?;
    let found = store.find_roots(config.facts().runtime_roots)?;
    warn_of_unreadable(&found.unreadable);
    Ok((store, found))
}

/// Returns the local store of the arguments, and its directories.
///
/// Errors: it is not a local store.
pub(super) fn local_store(
    args: &StoreQueryArgs,
    settings: &Settings,
) -> anyhow::Result<(Arc<dyn StoreConfig>, StoreLayout)> {
    let store = settings.local_store(args.local.root.as_deref(), args.local.store.as_deref())?;
    match store.layout().cloned() {
        Some(layout) => Ok((store, layout)),
        None => bail!(UsageError(messages::not_a_local_store(&*store))),
    }
}

/// Warns of what could not be read: it may hold further roots.
pub(super) fn warn_of_unreadable(places: &[Unreadable]) {
    for unreadable in places {
        warn(match unreadable {
            Unreadable::Link(path) => messages::unreadable_link(path),
            Unreadable::NoRoot(path) => messages::no_root(path),
            Unreadable::LinkToDirectory(path) => messages::link_to_directory(path),
            Unreadable::TooDeep(path) => messages::too_deep(path),
            Unreadable::Failed(error) => messages::failed_root(error),
            Unreadable::NotMounted { roots, mount_point } => {
                messages::not_mounted(roots, mount_point)
            }
            Unreadable::BelowEmptyDirectory { roots, directory } => {
                messages::below_empty_directory(roots, directory)
            }
            Unreadable::NotRecorded(error) => messages::root_not_recorded(error),
            Unreadable::Processes(count) => messages::unreadable_processes(*count),
            Unreadable::HiddenProcesses => messages::HIDDEN_PROCESSES.into(),
            Unreadable::NoProc => messages::NO_PROC.into(),
        });
    }
}

/// Warns of registrations of roots that point to nothing.
pub(super) fn warn_of_stale(stale: &[StaleRegistration]) {
    messages::stale_registrations(stale)
        .into_iter()
        .for_each(warn);
}

/// Warns of the rows that do not parse and that the command has left out until now.
pub(super) fn warn_of_skipped_rows(store: &StoreReader) {
    skipped_rows(&store.skipped_rows())
        .into_iter()
        .for_each(warn);
}

/// The generation of a profile that a link is.
struct ProfileGeneration {
    profile: Profile,
    number: u64,
    is_current: bool,
}

/// Returns the generation that a root is, if it is one: `P-N-link` beside the link `P`.
fn profile_generation(place: &RootPlace) -> Option<ProfileGeneration> {
    let RootPlace::Link(link) = place else {
        return None;
    };
    let name = link.file_name()?.to_str()?.strip_suffix("-link")?;
    let (profile, number) = name.rsplit_once('-')?;
    let number = number.parse().ok()?;
    let profile = Profile::at(&link.with_file_name(profile)).ok()?;
    let target = std::fs::read_link(profile.path()).ok()?;
    let directory = profile.path().parent().unwrap_or(Path::new("/"));
    Some(ProfileGeneration {
        is_current: directory.join(target) == *link,
        profile,
        number,
    })
}

/// Returns the path of a link as a user names it.
fn link_path(place: &RootPlace) -> Option<&PathBuf> {
    match place {
        RootPlace::Link(link) => Some(link),
        _ => None,
    }
}
