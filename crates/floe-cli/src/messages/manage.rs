//! The texts of `floe roots`, `list`, `uninstall` and `profile`.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use floe_format::drv_name::name_and_version;
use floe_store::{HiddenRoots, StaleRegistration, StoreError};
use floe_transfer::Size;
use rustix::process::geteuid;

use super::counted;

/// Escapes control characters: other users may name the links of a shared store.
pub(crate) fn escaped(place: impl Display) -> String {
    let place = place.to_string();
    let characters = place.chars().map(|c| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    characters.collect()
}

// Unreadable roots

pub(crate) fn unreadable_link(path: &Path) -> String {
    let path = escaped(path.display());
    format!(
        "cannot read {path}: a root there would be missing here{}",
        as_root()
    )
}

pub(crate) fn no_root(path: &Path) -> String {
    format!(
        "skipping {}: it leads through too many links or to a name that is too long, so it is no \
         root; try removing it",
        escaped(path.display())
    )
}

pub(crate) fn link_to_directory(path: &Path) -> String {
    format!(
        "skipping {}: it is a link to a directory, so the links there are no roots and keep \
         nothing; try a directory with these links in its place",
        escaped(path.display())
    )
}

pub(crate) fn too_deep(path: &Path) -> String {
    format!(
        "skipping directories below {}: they are too deep, and a root there would be missing here; \
         try removing them",
        escaped(path.display())
    )
}

pub(crate) fn failed_root(error: &str) -> String {
    format!("skipping a root: {}", escaped(error))
}

pub(crate) fn not_mounted(roots: &HiddenRoots, mount_point: &Path) -> String {
    let (first, link) = (
        escaped(roots.first.display()),
        escaped(roots.link.display()),
    );
    let mount_point = escaped(mount_point.display());
    let kept = match roots.count {
        1 => format!("the root {first}: its file system ({mount_point}) is not mounted"),
        count => format!(
            "{count} roots, such as {first}: their file systems ({mount_point}) are not mounted"
        ),
    };
    format!("keeping {kept}; if the root is gone for good, remove {link}")
}

pub(crate) fn below_empty_directory(roots: &HiddenRoots, directory: &Path) -> String {
    let (first, link) = (
        escaped(roots.first.display()),
        escaped(roots.link.display()),
    );
    let directory = escaped(directory.display());
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

pub(crate) fn root_not_recorded(error: &str) -> String {
    format!(
        "skipping the record of a root: {}; a collection deletes its closure while its file system \
         is not mounted",
        escaped(error)
    )
}

/// Names the registrations of roots that point to nothing.
pub(crate) fn stale_registrations(stale: &[StaleRegistration]) -> Option<String> {
    let first = escaped(stale.first()?.place.display());
    Some(match stale.len() {
        1 => format!(
            "ignoring the root {first}, which does not exist; floe gc removes its registration"
        ),
        count => format!(
            "ignoring {count} registered roots that do not exist, such as {first}; floe gc removes \
             their registrations"
        ),
    })
}

/// Names the profiles of other users that a command leaves as they are.
pub(crate) fn foreign_profiles(places: &[PathBuf]) -> Option<String> {
    let first = places.first()?.display();
    let are = match places.len() {
        1 => format!("{first}: it belongs"),
        count => format!("{count} profiles, such as {first}: they belong"),
    };
    Some(format!(
        "skipping {are} to another user; name a profile to change it, as in floe profile \
         wipe-history --profile {first}"
    ))
}

pub(crate) fn skipped_profile(place: &Path, error: &StoreError) -> String {
    format!("skipping the profile {}: {error}", place.display())
}

pub(crate) fn foreign_links(name: &str, links: &[String]) -> String {
    format!(
        "cannot uninstall {name}: only links of other users, or on file systems that are not \
         mounted, keep it; to remove one, name it: {}",
        links.join(", ")
    )
}

pub(crate) fn kept_foreign_links(links: &[String]) -> String {
    format!(
        "skipping links of other users, or on file systems that are not mounted, which still \
         keep the path: {}",
        links.join(", ")
    )
}

pub(crate) fn invalid_switch(number: u64, target: &Path) -> String {
    format!(
        "cannot switch to generation {number}: the store does not have {}; try floe install, or \
         another generation",
        target.display()
    )
}

pub(crate) fn foreign_home_link(link: &Path) -> String {
    format!(
        "cannot use the profile of {}: another user owns this link and could redirect it; try \
         --profile PROFILE, or running as that user",
        link.display()
    )
}

fn as_root() -> &'static str {
    match geteuid().is_root() {
        true => "",
        false => "; only root sees all",
    }
}

pub(crate) fn unreadable_processes(count: usize) -> String {
    let (processes, they) = match count {
        1 => ("1 process".to_owned(), "it uses"),
        count => (format!("{count} processes"), "they use"),
    };
    format!(
        "cannot read {processes}: paths that only {they} are missing here{}",
        as_root()
    )
}

pub(crate) const HIDDEN_PROCESSES: &str = "/proc hides the processes of other users (hidepid): \
     paths that only they use are missing here; only root sees all";

pub(crate) const NO_PROC: &str =
    "there is no /proc: paths that only running processes use are missing here; mount it first";

// floe roots

pub(crate) fn kept(paths: usize, size: Size) -> String {
    format!("{}, {size}", counted(paths, "path"))
}

pub(crate) fn root(place: impl Display, path: &str, kept: &str) -> String {
    let place = escaped(place);
    format!("{place} -> {path} ({kept})")
}

pub(crate) fn no_root_keeps(path: &str) -> String {
    format!("no root keeps {path}")
}

pub(crate) fn not_valid(path: &str) -> String {
    format!("cannot explain what keeps {path}: it is not valid in this store")
}

pub(crate) fn chain(root: &str, chain: &[String]) -> String {
    let root = escaped(root);
    let paths = chain.iter().map(|path| format!("\n  -> {path}"));
    format!("{root}{}", paths.collect::<String>())
}

// floe list

pub(crate) const LIST_HEADS: [&str; 5] = ["NAME", "SIZE", "CLOSURE", "SINCE", "KEPT BY"];

pub(crate) const NO_ROOT: &str = "no root";

pub(crate) fn no_kept_paths(valid: usize) -> String {
    match valid {
        0 => "the store is empty".into(),
        valid => format!(
            "no link and no profile keeps a path; --all shows {}",
            match valid {
                1 => "the valid one".into(),
                valid => format!("the {valid} valid ones"),
            }
        ),
    }
}

pub(crate) fn kept_by(link: &str, generation: Option<(u64, bool)>) -> String {
    let link = escaped(link);
    match generation {
        None => link,
        Some((number, true)) => format!("{link} (generation {number}, current)"),
        Some((number, false)) => format!("{link} (generation {number})"),
    }
}

// floe uninstall

/// Whether a user may mean a path with this name: with or without the version.
pub(crate) fn has_name(name: &str, text: &str) -> bool {
    name == text || name_and_version(name).0 == text
}

pub(crate) fn no_link_keeps(path: &str) -> String {
    format!(
        "cannot uninstall {path}: no link and no profile keeps it; floe roots --why {path} shows \
         what else does"
    )
}

pub(crate) fn not_a_root(text: &str) -> String {
    format!(
        "cannot uninstall {text:?}: it is not a root of this store; floe list shows the links, and \
         a store path removes all links to it"
    )
}

pub(crate) fn nothing_named(name: &str) -> String {
    format!(
        "cannot uninstall {name}: no root or profile keeps a path of this name; floe list shows all"
    )
}

pub(crate) fn ambiguous(name: &str, paths: &[String]) -> String {
    format!(
        "cannot uninstall {name}: several paths have this name; give one of {}",
        paths.join(", ")
    )
}

pub(crate) fn not_removable(place: impl Display) -> String {
    format!("cannot uninstall {place}: it is not a link; end the process that uses the path")
}

pub(crate) fn current_generation(profile: &Path, number: u64) -> String {
    let profile = profile.display();
    format!(
        "cannot remove generation {number} of {profile}: it is the current one; switch to another \
         one first (floe profile rollback --profile {profile})"
    )
}

pub(crate) fn removed(place: impl Display, path: &str, dry_run: bool) -> String {
    let place = escaped(place);
    match dry_run {
        true => format!("would remove {place} -> {path}"),
        false => format!("removed {place} -> {path}"),
    }
}

pub(crate) fn would_free(paths: usize, size: Size) -> String {
    match paths {
        0 => "a collection would free no more than before: other roots keep all paths".into(),
        paths => format!(
            "a collection would free {} ({size}) that nothing else keeps",
            counted(paths, "path")
        ),
    }
}

// floe profile

pub(crate) const NO_HOME: &str =
    "cannot find the default profile: HOME is not set; name a profile with --profile";

/// The line of `nix-env --list-generations`.
pub(crate) fn generation(number: u64, time: &str, is_current: bool) -> String {
    let current = if is_current { "(current)" } else { "" };
    format!("{number:4}   {time}   {current}")
}

pub(crate) fn generation_head(number: u64, time: &str, is_current: bool, target: &Path) -> String {
    let current = if is_current { ", current" } else { "" };
    format!(
        "generation {number} ({time}{current}): {}",
        target.display()
    )
}

pub(crate) fn invalid_generation(number: u64, target: &Path) -> String {
    let target = target.display();
    format!(
        "generation {number} is not a valid path of this store, so its changes are unknown: {target}"
    )
}

pub(crate) fn switched(profile: &Path, before: Option<u64>, now: u64) -> String {
    let profile = profile.display();
    match before {
        Some(before) => format!("switched {profile} from generation {before} to {now}"),
        None => format!("switched {profile} to generation {now}"),
    }
}

pub(crate) fn deleted_generation(profile: &Path, number: u64, dry_run: bool) -> String {
    let verb = if dry_run { "would delete" } else { "deleted" };
    format!("{verb} generation {number} of {}", profile.display())
}

pub(crate) fn no_deleted_generation(profile: &Path) -> String {
    format!(
        "nothing to delete: {} has no such generation",
        profile.display()
    )
}

pub(crate) fn not_a_generation_spec(text: &str) -> String {
    format!(
        "cannot delete the generations {text:?}: it is neither a number, nor old, nor a time such \
         as 30d, nor a count to keep such as +5"
    )
}

pub(crate) const KEEPS_NONE: &str =
    "cannot keep 0 generations: the current one always stays; give a higher count";

pub(crate) fn mixed_generation_specs() -> String {
    "cannot delete generations by several rules at once; give numbers, or one rule".into()
}

pub(crate) fn not_a_time(text: &str) -> String {
    format!("cannot delete what is older than {text:?}: it is not a time; give one such as 30d")
}

/// A package whose versions or size differ between two closures.
pub(crate) fn changed_package(name: &str, before: &str, after: &str, bytes: i64) -> String {
    let versions = match before == after {
        true => String::new(),
        false => format!("{before} -> {after}, "),
    };
    let sign = if bytes < 0 { '-' } else { '+' };
    format!("  {name}: {versions}{sign}{}", Size(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_links_are_escaped() {
        assert_eq!(kept_by("/a/e\x1b[31m\nü", None), "/a/e\\u{1b}[31m\\nü");
    }

    #[test]
    fn control_characters_of_unmounted_roots_are_escaped() {
        let roots = HiddenRoots {
            count: 1,
            first: "/a\nfloe: b".into(),
            link: "/c\nd".into(),
        };
        for warning in [
            not_mounted(&roots, Path::new("/m\nn")),
            below_empty_directory(&roots, Path::new("/m\nn")),
            failed_root("e\nf"),
        ] {
            assert!(
                !warning.contains('\n') && warning.contains("\\n"),
                "{warning}"
            );
        }
    }

    #[test]
    fn names_match_with_and_without_version() {
        assert!(has_name("jq-1.6", "jq") && has_name("jq-1.6", "jq-1.6"));
        assert!(!has_name("jq-tool-1.6", "jq") && !has_name("jq-1.6", "jq-1"));
    }

    #[test]
    fn changed_package_names_versions_only_if_they_differ() {
        let changed = |before, after, bytes| changed_package("jq", before, after, bytes);
        assert_eq!(changed("1.6", "1.7", 20_480), "  jq: 1.6 -> 1.7, +20 KiB");
        assert_eq!(changed("", "", -20_480), "  jq: -20 KiB");
    }
}
