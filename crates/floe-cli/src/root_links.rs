//! Roots as users see them: warnings of those that could not be read, links, and generations of
//! profiles.

use std::path::{Path, PathBuf};

use floe_store::{Profile, RootPlace, StaleRegistration, StoreReader, Unreadable};

use crate::display::warn;
use crate::messages::manage as messages;
use crate::messages::skipped_rows;

/// Warns of what could not be read: it may hold further roots.
pub(crate) fn warn_of_unreadable(places: &[Unreadable]) {
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
pub(crate) fn warn_of_stale(stale: &[StaleRegistration]) {
    messages::stale_registrations(stale)
        .into_iter()
        .for_each(warn);
}

/// Warns of the rows that do not parse and that the command has left out until now.
pub(crate) fn warn_of_skipped_rows(store: &StoreReader) {
    skipped_rows(&store.skipped_rows())
        .into_iter()
        .for_each(warn);
}

/// The generation of a profile that a link is.
pub(crate) struct ProfileGeneration {
    pub(crate) profile: Profile,
    pub(crate) number: u64,
    pub(crate) is_current: bool,
}

/// Returns the generation that a root is, if it is one: `P-N-link` beside the link `P`.
pub(crate) fn profile_generation(place: &RootPlace) -> Option<ProfileGeneration> {
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
pub(crate) fn link_path(place: &RootPlace) -> Option<&PathBuf> {
    match place {
        RootPlace::Link(link) => Some(link),
        _ => None,
    }
}
