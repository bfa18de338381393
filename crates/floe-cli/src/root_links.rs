//! Roots as users see them: warnings of those that could not be read, links, and generations of
//! profiles.

use std::path::{Path, PathBuf};

use floe_store::{HiddenRoots, Profile, RootPlace, StaleRegistration, StoreReader, Unreadable};
use rustix::process::geteuid;

use crate::display::warn;
use crate::messages::{escaped, skipped_rows};

/// Warns of what could not be read: it may hold further roots.
pub(crate) fn warn_of_unreadable<'a>(places: impl IntoIterator<Item = &'a Unreadable>) {
    places.into_iter().map(describe).for_each(warn);
}

fn describe(unreadable: &Unreadable) -> String {
    let shown = |path: &Path| escaped(path.display());
    match unreadable {
        Unreadable::Link(path) => format!(
            "cannot read {}: a root there would be missing here{}",
            shown(path),
            as_root()
        ),
        Unreadable::TemporaryRoots { files, first } => format!(
            "cannot read {files} files of temporary roots, such as {}: roots there would be \
             missing here{}",
            shown(first),
            as_root()
        ),
        Unreadable::NoRoot(path) => format!(
            "skipping {}: it leads through too many links or to a name that is too long, so it is \
             no root; try removing it",
            shown(path)
        ),
        Unreadable::LinkToDirectory(path) => format!(
            "skipping {}: it is a link to a directory, so the links there are no roots and keep \
             nothing; try a directory with these links in its place",
            shown(path)
        ),
        Unreadable::TooDeep(path) => format!(
            "skipping directories below {}: they are too deep, and a root there would be missing \
             here; try removing them",
            shown(path)
        ),
        Unreadable::Failed(error) => format!("skipping a root: {}", escaped(error)),
        Unreadable::NotMounted { roots, mount_point } => not_mounted(roots, &shown(mount_point)),
        Unreadable::BelowEmptyDirectory { roots, directory } => {
            below_empty_directory(roots, &shown(directory))
        }
        Unreadable::NotRecorded(error) => format!(
            "skipping the record of a root: {}; a collection deletes its closure while its file \
             system is not mounted",
            escaped(error)
        ),
        Unreadable::Processes(count) => {
            let (processes, they) = match count {
                1 => ("1 process".to_owned(), "it uses"),
                count => (format!("{count} processes"), "they use"),
            };
            format!(
                "cannot read {processes}: paths that only {they} are missing here{}",
                as_root()
            )
        }
        Unreadable::HiddenProcesses => "/proc hides the processes of other users (hidepid): paths \
                                        that only they use are missing here; only root sees all"
            .into(),
        Unreadable::NoProc => "there is no /proc: paths that only running processes use are \
                               missing here; mount it first"
            .into(),
    }
}

fn not_mounted(roots: &HiddenRoots, mount_point: &str) -> String {
    let [first, link] = [&roots.first, &roots.link].map(|path| escaped(path.display()));
    let kept = match roots.count {
        1 => format!("the root {first}: its file system ({mount_point}) is not mounted"),
        count => format!(
            "{count} roots, such as {first}: their file systems ({mount_point}) are not mounted"
        ),
    };
    format!("keeping {kept}; if the root is gone for good, remove {link}")
}

fn below_empty_directory(roots: &HiddenRoots, directory: &str) -> String {
    let [first, link] = [&roots.first, &roots.link].map(|path| escaped(path.display()));
    let kept = match roots.count {
        1 => format!("the registration of the root {first}, but not its path"),
        count => {
            format!("the registrations of {count} roots, but not their paths, such as {first}")
        }
    };
    format!(
        "keeping {kept}: {directory} is empty, so a file system may not be mounted there; if the \
         root is gone for good, remove {link}"
    )
}

fn as_root() -> &'static str {
    if geteuid().is_root() {
        ""
    } else {
        "; only root sees all"
    }
}

/// Warns of registrations of roots that point to nothing.
pub(crate) fn warn_of_stale(stale: &[StaleRegistration]) {
    let Some(first) = stale.first() else { return };
    let first = escaped(first.place.display());
    warn(match stale.len() {
        1 => format!(
            "ignoring the root {first}, which does not exist; floe gc removes its registration"
        ),
        count => format!(
            "ignoring {count} registered roots that do not exist, such as {first}; floe gc removes \
             their registrations"
        ),
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_unmounted_roots_are_escaped() {
        let roots = HiddenRoots {
            count: 1,
            first: "/a\nfloe: b".into(),
            link: "/c\nd".into(),
        };
        for unreadable in [
            Unreadable::NotMounted {
                roots: roots.clone(),
                mount_point: "/m\nn".into(),
            },
            Unreadable::BelowEmptyDirectory {
                roots: roots.clone(),
                directory: "/m\nn".into(),
            },
            Unreadable::Failed("e\nf".into()),
        ] {
            let warning = describe(&unreadable);
            assert!(
                !warning.contains('\n') && warning.contains("\\n"),
                "{warning}"
            );
        }
    }
}
