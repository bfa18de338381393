//! The texts of `floe install` and `floe copy`.

use std::fmt::Display;
use std::path::Path;

use floe_copy::CopySummary;
use floe_format::StorePath;
use floe_format::path_info::OTHER_SIGNATURES_LEN_MAX;
use floe_transfer::{Error, Event, Size, Space};

use super::{counted, waiting_for_resource};

// Before the copy

pub(crate) const NO_SUBSTITUTER: &str = "cannot fetch anything: no usable substituter is \
                                         configured; name a cache with --from";

pub(crate) const UNUSED_LOCAL_STORE: &str = "cannot use --root or --store: --from and --to name \
     both ends of the copy; leave out one of them";

pub(crate) const FOLLOWS_NOTHING: &str =
    "cannot follow stdin: no path comes from there; add --stdin";

pub(crate) const NO_PUSH_TARGET: &str =
    "cannot push: no cache is named; add --to URL, or set push-to in nix.conf";

pub(crate) fn not_a_cache(target: impl Display) -> String {
    format!("cannot push to {target}: it is not a binary cache; use floe copy --to {target}")
}

pub(crate) fn not_watchable(source: impl Display) -> String {
    format!("cannot watch {source}: it is not a local store; name one with --root or --store")
}

pub(crate) fn watching(store: &Path) -> String {
    format!(
        "watching {}; SIGINT or SIGTERM ends it after the last path",
        store.display()
    )
}

pub(crate) const NO_PATHS_TO_COPY: &str = "copied 0 paths: the source has no valid paths";

/// The option of nix-copy-closure that needs derivations.
pub(crate) const NO_OUTPUTS: &str =
    "cannot use --include-outputs: floe does not read derivations for it; name the outputs";

/// A target that keeps no roots for links on this machine.
pub(crate) fn vanished_before_root(path: &StorePath) -> String {
    format!("copying {path} again: a garbage collection has deleted it")
}

pub(crate) fn no_links_to(target: impl Display) -> String {
    format!(
        "cannot use --out-link or --profile: links on this machine keep nothing in {target}; leave \
         them out, or copy to a local store"
    )
}

/// A target behind a daemon, in which floe makes no profile.
pub(crate) fn no_profile_of(target: impl Display) -> String {
    format!(
        "cannot use --profile: floe makes no profiles through {target}; use --out-link, or add the \
         path with nix-env -p PROFILE --set PATH"
    )
}

pub(crate) fn ignored_substituter(error: &Error) -> String {
    format!("ignoring substituter: {error}")
}

pub(crate) fn ignored_trusted(source: impl Display) -> String {
    format!(
        "ignoring the parameter trusted of {source}: only floe install obeys it; use \
         --no-check-sigs to copy paths without a trusted signature"
    )
}

pub(crate) fn skipped_source(name: impl Display, error: &Error) -> String {
    format!("skipping source {name}: {error}")
}

pub(crate) fn created(target: impl Display) -> String {
    format!("created {target}")
}

pub(crate) fn several_paths_for_profile(count: usize) -> String {
    format!(
        "cannot set a profile to {count} paths: it takes one; merge them into one path, or use \
         --out-link"
    )
}

// A store directory on a read-only mount

pub(crate) fn read_only_mount(store: &Path) -> String {
    format!(
        "cannot write to the store directory {}: it is mounted read-only; run floe as root \
         (sudo floe …), which makes it writable for floe only, or use another store with --root \
         DIR",
        store.display()
    )
}

pub(crate) fn no_mount_namespace(store: &Path, cause: impl Display) -> String {
    cannot_remount(store, format!("floe gets no mounts of its own ({cause})"))
}

pub(crate) fn remount_failed(store: &Path, cause: impl Display) -> String {
    cannot_remount(store, format!("the mount stays read-only ({cause})"))
}

pub(crate) fn read_only_file_system(store: &Path) -> String {
    cannot_remount(store, "its file system is read-only")
}

fn cannot_remount(store: &Path, cause: impl Display) -> String {
    format!(
        "cannot make the store directory {} writable: {cause}; mount it writable first, or use \
         another store with --root DIR",
        store.display()
    )
}

// During the copy

pub(crate) fn plan(count: usize, nar_bytes: u64, download_bytes: u64) -> String {
    let (paths, unpacked) = (counted(count, "path"), Size(nar_bytes));
    match download_bytes {
        0 => format!("copying {paths}, {unpacked} unpacked"),
        bytes => format!(
            "copying {paths}: {} to fetch, {unpacked} unpacked",
            Size(bytes)
        ),
    }
}

/// The line of a received path.
pub(crate) fn received(number: usize, planned: usize, path: &StorePath) -> String {
    format!("[{number}/{planned}] {path}")
}

/// Returns the line about a query or a transfer.
pub(crate) fn request_line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Querying { requested } => format!("querying {requested}"),
        Event::Resolved { path, nar_size, .. } => {
            format!("found {path}, {} unpacked", Size(*nar_size))
        }
        Event::Started { path, .. } => format!("receiving {path}"),
        Event::Committing { path } => format!("registering {path}"),
        Event::Valid { path } => format!("registered {path}"),
        _ => return None,
    })
}

/// Returns the warning about an event, if the event needs one.
pub(crate) fn event_warning(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::UnusableNetrc { error } => format!("ignoring netrc file: {error}"),
        Event::LowSpace { shortage } if shortage.is_certain => {
            format!("the copy does not fit: {shortage}")
        }
        Event::LowSpace { shortage } => format!("not sure whether the copy fits: {shortage}"),
        Event::AvoidedSource { source, error } => {
            format!("avoiding {source} and using the other sources: {error}")
        }
        Event::NotReused { path, place, error } => {
            let place = place.display();
            format!("cannot reuse {path} from {place}, fetching it instead: {error}")
        }
        Event::SkippedRows { rows } => return super::skipped_rows(rows),
        Event::SkippedBuildLog {
            derivation,
            log_dir,
            error,
        } => {
            let log_dir = log_dir.display();
            format!("skipping the build log of {derivation} in {log_dir}: {error}")
        }
        Event::DamagedPath { path, reason } => {
            format!("replacing {path}: {reason}")
        }
        Event::DroppedSignatures { path, count } => format!(
            "dropping {} of {path} that no trusted key made: floe keeps only well-formed ones, \
             and {OTHER_SIGNATURES_LEN_MAX} bytes of them",
            counted(*count, "signature")
        ),
        Event::DamagedLink { path, link } => format!(
            "replacing the damaged file .links/{link} by an intact one of {path}; floe verify \
             finds other paths with the same damage"
        ),
        _ => return None,
    })
}

/// Returns the line about an event that users read, except for lines with counts.
pub(crate) fn event_line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Planned { paths: 0, .. } => return None,
        Event::Planned {
            paths,
            nar_bytes,
            download_bytes,
        } => plan(*paths, *nar_bytes, *download_bytes),
        Event::Retrying { path, error } => match path {
            Some(path) => format!("retrying {path}: {error}"),
            None => format!("retrying: {error}"),
        },
        Event::Failed { error } => format!("floe: {error}"),
        Event::KeptForResume { paths } => {
            let count = counted(*paths, "complete path");
            let pronoun = if *paths == 1 { "it" } else { "them" };
            format!("kept {count} whose references are missing; the next run reuses {pronoun}")
        }
        Event::WaitingForLock { path, seconds } => {
            format!(
                "waiting for a lock on {path}, at most {} minutes",
                seconds / 60
            )
        }
        Event::WaitingForDatabase { what } => waiting_for_resource(what),
        Event::RemoteMessage { store, text } => format!("{store}: {text}"),
        _ => return event_warning(event).map(|warning| format!("floe: warning: {warning}")),
    })
}

// After the copy

pub(crate) fn reuse_summary(outcome: &CopySummary) -> String {
    let unpacked = Size(outcome.reused_nar_bytes);
    let reused = usize::try_from(outcome.reused).unwrap_or(usize::MAX);
    let paths = counted(reused, "path");
    format!("reused {paths} of this machine ({unpacked} unpacked) instead of fetching them")
}

pub(crate) fn more_failures(count: usize) -> String {
    format!(
        "{} for the same causes; --log-format json prints all",
        counted(count, "more failure")
    )
}

pub(crate) fn more_dropped_signatures(count: usize) -> String {
    format!("dropping signatures of {}", counted(count, "more path"))
}

pub(crate) fn space(space: &Space) -> String {
    let (bytes, inodes) = (Size(space.write_bytes), space.write_inodes);
    let file_system = &space.file_system;
    let free = match (file_system.free_bytes, file_system.free_inodes) {
        (None, _) => "free space unknown".to_owned(),
        (Some(bytes), None) => format!("{} free", Size(bytes)),
        (Some(bytes), Some(inodes)) => format!("{} and {inodes} inodes free", Size(bytes)),
    };
    let kind = file_system.kind.map(|kind| format!(" ({kind})"));
    format!(
        "would write about {bytes} and {inodes} inodes to {}{}: {free}",
        file_system.mount_point.display(),
        kind.unwrap_or_default(),
    )
}

// --trace

pub(crate) fn trace_file(action: &str, path: &Path) -> String {
    format!("cannot {action} the trace file {}", path.display())
}
