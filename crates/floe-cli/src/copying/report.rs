//! The output of a copy at its end.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use floe_copy::{CopySummary, OpenCopy};
use floe_format::{StoreDir, StorePath, sum_of_sizes};
use floe_names::ResolvedName;
use floe_store::{StoreLayout, StoreReader};
use floe_transfer::{Error, ErrorKind, Size, Space, StoreConfig};
use serde_json::{Value, json};

use super::CopyAction;
use super::gc_roots::RootChange;
use crate::display::{Elapsed, Level, eprint_line, is_json, write_event};
use crate::exit;
use crate::messages::counted;
use crate::package_names;
use crate::stdout::print;

pub(super) fn created(target: &dyn StoreConfig) {
    if is_json() {
        write_event(
            Level::Info,
            "created",
            json!({ "target": target.to_string() }),
        )
    } else {
        eprint_line(format_args!("created {target}"))
    }
}

/// Prints the number of paths that failed, and returns the exit code of the most severe failure.
pub(super) fn failures(summary: &CopySummary) -> anyhow::Result<()> {
    let failed = summary.failed_paths();
    if failed == 0 {
        return Ok(());
    }
    let line = failed_line(failed);
    let kind = ErrorKind::most_severe(&summary.failures);
    Err(exit::failures(&line, failed, kind))
}

/// Prints the last lines of a copy. `has_roots` tells whether GC roots were requested, `changes`
/// has those that were made, and `would_change` tells whether a dry run would make some.
pub(super) fn done(
    action: CopyAction,
    (open, summary): (&OpenCopy<'_>, &CopySummary),
    time: Duration,
    (target, has_roots): (&dyn StoreConfig, bool),
    (changes, would_change): (&[RootChange], bool),
) -> anyhow::Result<()> {
    let participle = action.participle();
    if open.options.dry_run {
        eprint_line(match summary.planned.len() {
            0 if would_change => {
                "nothing to copy: the links of --out-link and --profile would change".into()
            }
            _ => planned_line(participle, summary, target),
        });
        return Ok(());
    }
    let is_failed = !summary.failures.is_empty();
    if is_failed && summary.copied == 0 {
        return Ok(());
    }
    let present = match summary.copied {
        0 => present_paths(open, summary)?,
        _ => 0,
    };
    let mut line = if summary.copied == 0 && summary.signed == 0 && !changes.is_empty() {
        all_present(present)
    } else {
        done_line(participle, (summary, present), time, target)
    };
    if let Some(layout) = target.layout()
        && summary.copied > 0
        && !is_failed
        && !has_roots
        && (open.is_new || !are_kept(layout, summary))
    {
        line += &format!(
            "; nothing protects them from garbage collection yet (use {})",
            action.root_options()
        );
    }
    line += &unsigned_note(summary, target.facts().server_may_sign);
    if is_json() {
        write_event(
            Level::Info,
            "done",
            json!({
                "message": line,
                "copied": summary.copied,
                "unsigned": summary.unsigned,
                "signed": summary.signed,
                "downloadBytes": summary.download_bytes,
                "sentBytes": summary.sent_bytes,
                "narBytes": summary.nar_bytes,
                "seconds": time.as_secs_f64(),
            }),
        )
    } else {
        eprint_line(line)
    }
    // A new link after a copy is what the user expects.
    let shown = changes.iter();
    let shown = shown.filter(|change| summary.copied == 0 || change.is_replacement);
    shown.for_each(|change| eprint_line(&change.line));
    Ok(())
}

/// Whether links keep all requested paths already, as after a repair.
fn are_kept(layout: &StoreLayout, summary: &CopySummary) -> bool {
    let links = StoreReader::open(layout.clone()).and_then(|store| store.find_links());
    let Ok(links) = links else { return false };
    let kept: BTreeSet<&StorePath> = links.roots.iter().map(|root| &root.path).collect();
    let mut requested = summary.requested_paths.iter();
    requested.all(|path| kept.contains(path))
}

/// The work that a copy has done. `present` is the number of paths that were there before.
fn done_line(
    participle: &str,
    (summary, present): (&CopySummary, u64),
    time: Duration,
    target: impl Display,
) -> String {
    if summary.copied == 0 && summary.signed > 0 {
        let present = counted(present, "present path");
        return format!("signed {} of {present} in {target}", summary.signed);
    }
    if summary.copied == 0 {
        return nothing_to_do(present);
    }
    let unpacked = Size(summary.nar_bytes);
    let amounts = [
        (summary.download_bytes, "fetched"),
        (summary.sent_bytes, "sent"),
    ];
    let amounts = amounts.into_iter().filter(|(bytes, _)| *bytes > 0);
    let amounts = amounts.map(|(bytes, what)| format!("{} {what}, ", Size(bytes)));
    let amount = format!("{}{unpacked} unpacked", amounts.collect::<String>());
    let (paths, time) = (counted(summary.copied, "path"), Elapsed(time));
    let mut line = format!("{participle} {paths} ({amount}) in {time} into {target}");
    if summary.signed > 0 {
        line += &format!(", and signed {} present ones", summary.signed);
    }
    line
}

/// Tells that clients refuse the copied paths of a cache, if they do.
fn unsigned_note(summary: &CopySummary, server_may_sign: bool) -> String {
    let of_them = match summary.unsigned {
        0 => return String::new(),
        all if all == summary.copied => "without a signature".into(),
        some => format!("{some} of them without a signature"),
    };
    let consequence = if server_may_sign {
        ": clients refuse them unless the server signs them"
    } else {
        ", so clients refuse them"
    };
    format!("; {of_them}{consequence} (name a key with secret-key=FILE in the URL)")
}

fn nothing_to_do(present: u64) -> String {
    match present {
        0 => "nothing to do".into(),
        paths => format!("nothing to do: {}", all_present(paths)),
    }
}

fn all_present(paths: u64) -> String {
    match paths {
        1 => "the path is present".into(),
        paths => format!("all {paths} paths are present"),
    }
}

/// The work that a dry run has found.
fn planned_line(participle: &str, summary: &CopySummary, target: impl Display) -> String {
    let nar_bytes = sum_of_sizes(summary.planned.iter().map(|(_, size, _)| *size));
    match summary.planned.len() {
        0 => "nothing to do".into(),
        paths => format!(
            "{} ({} unpacked) would be {participle} into {target}",
            counted(paths, "path"),
            Size(nar_bytes)
        ),
    }
}

/// Returns the number of a name whose path no source has.
pub(super) fn missing_name(summary: &CopySummary, names: &[ResolvedName]) -> Option<usize> {
    let mut failures = summary.failures.iter();
    failures.find_map(|error| match error {
        Error::NotFound { path, .. } => names.iter().position(|it| it.path.as_str() == path),
        _ => None,
    })
}

fn failed_line(count: usize) -> String {
    format!("failed to copy {}", counted(count, "path"))
}

/// Tells how to use links to a store that is not at the place that its paths name.
///
/// `is_default` tells whether commands without `--root` mean the store.
pub(super) fn dangling_links(
    layout: &StoreLayout,
    is_default: bool,
    links: &[(PathBuf, StorePath)],
) {
    if layout.place_elsewhere().is_none() {
        return;
    }
    let root = layout.real_store_dir.ancestors().nth(2);
    let is_in_root = layout.real_store_dir.ends_with("nix/store");
    let options = root
        .filter(|_| is_in_root && !is_default)
        .map(|root| format!("--root {} ", root.display()));
    for (link, path) in links {
        let (link, place) = (link.display(), layout.real_path(path));
        let advice = if place.join("bin").symlink_metadata().is_ok() {
            format!(
                "; run its program by floe run {}{link}",
                options.as_deref().unwrap_or_default()
            )
        } else {
            String::new()
        };
        eprint_line(format_args!(
            "{link} names a path whose files are in {}{advice}",
            place.display()
        ));
    }
}

/// Returns the number of paths in the requested closures, all of which were valid before.
fn present_paths(open: &OpenCopy<'_>, summary: &CopySummary) -> anyhow::Result<u64> {
    Ok(match &open.local_store {
        Some(store) => store.closure_len(&summary.requested_paths)?,
        None => summary.already_valid,
    })
}

pub(super) fn print_plan(summary: &CopySummary, dir: &StoreDir) -> anyhow::Result<()> {
    if let Some(space) = &summary.space {
        // stdout has the plan.
        eprint_line(space_line(space));
    }
    for (path, nar_size, download) in &summary.planned {
        let download = download.map_or_else(|| "?".to_owned(), |size| size.to_string());
        let path = dir.full_path(path);
        print(format_args!("{path} {nar_size} {download}"))?;
    }
    Ok(())
}

fn space_line(space: &Space) -> String {
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

pub(super) fn print_json(
    (open, names): (&OpenCopy<'_>, &[ResolvedName]),
    summary: &CopySummary,
    began: Instant,
) -> anyhow::Result<()> {
    let dir = open.target.store_dir();
    let already_valid = match &open.local_store {
        Some(_) => present_paths(open, summary)?.saturating_sub(summary.copied),
        None => summary.already_valid,
    };
    let paths = summary.requested_paths.iter();
    let mut object = json!({
        "paths": paths.map(|path| dir.full_path(path)).collect::<Vec<_>>(),
        "copied": summary.copied,
        "unsigned": summary.unsigned,
        "signed": summary.signed,
        "alreadyValid": already_valid,
        "downloadBytes": summary.download_bytes,
        "sentBytes": summary.sent_bytes,
        "narBytes": summary.nar_bytes,
        "reusedPaths": summary.reused,
        "reusedNarBytes": summary.reused_nar_bytes,
        "seconds": began.elapsed().as_secs_f64(),
    });
    if !names.is_empty() {
        let names = names.iter().map(|name| package_names::to_json(name, dir));
        object["names"] = names.collect();
    }
    if open.options.dry_run {
        let planned = summary.planned.iter().map(|(path, nar_size, download)| {
            json!({ "path": dir.full_path(path), "narSize": nar_size, "downloadSize": download })
        });
        object["planned"] = planned.collect();
        insert_space(&mut object, summary.space.as_ref());
    }
    print(object)
}

/// Adds the needed and the free space to the JSON object of a dry run. An empty plan writes nothing
/// and has no file system.
fn insert_space(object: &mut Value, space: Option<&Space>) {
    object["writeBytes"] = json!(space.map_or(0, |space| space.write_bytes));
    object["writeInodesEstimate"] = json!(space.map_or(0, |space| space.write_inodes));
    let Some(space) = space else { return };
    let file_system = &space.file_system;
    object["freeBytes"] = json!(file_system.free_bytes);
    object["freeInodes"] = json!(file_system.free_inodes);
    object["fileSystem"] = json!({
        "mountPoint": file_system.mount_point.display().to_string(),
        "kind": file_system.kind,
    });
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn failed_line_counts_paths() {
        expect!["failed to copy 3 paths"].assert_eq(&failed_line(3));
    }
}
