//! The output of a copy at its end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use floe_copy::{CopySummary, OpenCopy};
use floe_format::{StoreDir, StorePath};
use floe_store::StoreLayout;
use floe_transfer::{ErrorKind, Space, StoreConfig};
use serde_json::{Value, json};

use super::CopyAction;
use crate::display::{Level, eprint_error, eprint_line, is_json, write_event};
use crate::exit;
use crate::messages::{copy, outcome};
use crate::stdout::print;

pub(super) fn created(target: &dyn StoreConfig) {
    match is_json() {
        true => write_event(
            Level::Info,
            "created",
            json!({ "target": target.to_string() }),
        ),
        false => eprint_line(copy::created(target)),
    }
}

/// Prints the number of paths that failed, and returns the exit code of the most severe failure.
pub(super) fn failures(summary: &CopySummary) -> anyhow::Result<()> {
    let failed = summary.failed_paths();
    if failed == 0 {
        return Ok(());
    }
    let line = outcome::failed(failed);
    if !is_json() {
        eprint_error(line.as_str());
    }
    let kind = ErrorKind::most_severe(&summary.failures);
    Err(exit::failures(&line, failed, kind))
}

/// Prints the last line of a copy. `has_roots` tells whether GC roots were requested.
pub(super) fn done(
    action: CopyAction,
    (open, summary): (&OpenCopy<'_>, &CopySummary),
    time: Duration,
    (target, has_roots): (&dyn StoreConfig, bool),
) -> anyhow::Result<()> {
    let participle = action.participle();
    if open.options.dry_run {
        eprint_line(outcome::would_do(participle, summary, target));
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
    let mut line = outcome::done(participle, (summary, present), time, target);
    if summary.copied > 0 && !is_failed && !has_roots && target.layout().is_some() {
        line += outcome::NO_ROOT;
    }
    match is_json() {
        true => write_event(
            Level::Info,
            "done",
            json!({
                "message": line,
                "copied": summary.copied,
                "downloadBytes": summary.download_bytes,
                "narBytes": summary.nar_bytes,
                "seconds": time.as_secs_f64(),
            }),
        ),
        false => eprint_line(line),
    }
    Ok(())
}

/// Tells how to use links to a store that is not at the place that its paths name.
pub(super) fn dangling_links(layout: &StoreLayout, links: &[(PathBuf, StorePath)]) {
    if layout.place_elsewhere().is_none() {
        return;
    }
    let root = layout.real_store_dir.ancestors().nth(2);
    let is_in_root = layout.real_store_dir.ends_with("nix/store");
    let options = root
        .filter(|_| is_in_root)
        .map(|root| format!("--root {} ", root.display()));
    for (link, path) in links {
        let place = layout.real_path(path);
        let options = options.as_deref().unwrap_or_default();
        eprint_line(outcome::dangling_link(link, &place, options));
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
        eprint_line(copy::space(space));
    }
    for (path, nar_size, download) in &summary.planned {
        let download = download.map_or_else(|| "?".to_owned(), |size| size.to_string());
        let path = dir.full_path(path);
        print(format_args!("{path} {nar_size} {download}"))?;
    }
    Ok(())
}

pub(super) fn print_json(
    open: &OpenCopy<'_>,
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
        "alreadyValid": already_valid,
        "downloadBytes": summary.download_bytes,
        "narBytes": summary.nar_bytes,
        "reusedPaths": summary.reused,
        "reusedNarBytes": summary.reused_nar_bytes,
        "seconds": began.elapsed().as_secs_f64(),
    });
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
