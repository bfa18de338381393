//! `floe cache gc`: deletes the paths of a cache that no pin needs.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::bail;
use floe_copy::{CacheCollection, CollectionEvent, CollectionOptions, CollectionReport, Marked};
use floe_format::StoreDir;
use floe_transfer::Size;
use serde_json::json;

use super::ChosenCache;
use super::args::CacheGcArgs;
use crate::display::{eprint_line, warn};
use crate::exit::{self, UsageError};
use crate::messages::counted;
use crate::stdout::print;

pub(super) fn run(args: &CacheGcArgs) -> anyhow::Result<()> {
    let chosen = ChosenCache::of(&args.of, None)?;
    let cache = chosen.open(args.dry_run)?;
    let options = CollectionOptions {
        keep_newer: args.keep_since.unwrap_or_default(),
        keep_generations: args.keep_generations.unwrap_or(NonZeroUsize::MIN),
        grace: args.grace,
    };
    let collection = CacheCollection {
        cache: cache.inventory()?,
        options: &options,
        cancel: &chosen.cancel,
        events: &show,
    };
    let marked = collection.mark()?;
    if marked.pins() == 0 && args.keep_since.is_none() {
        bail!(UsageError(format!(
            "cannot collect {}: it has no pin, so that every path would be deleted; give \
             --keep-since 30d, or pin what shall stay with floe pin",
            chosen.store
        )));
    }
    let kept = Kept::of(&marked);
    if args.dry_run {
        return show_report(args, &marked.report(), (&kept, cache.dir()));
    }
    if !marked.is_empty() {
        let planned = marked.report();
        eprint_line(format_args!(
            "{} and {} of {} are not needed",
            counted(planned.paths.len(), "path"),
            counted(planned.files, "file"),
            chosen.store,
        ));
    }
    let report = collection.run(marked);
    let report = report.map_err(|error| exit::explain_interrupt(error.into(), INTERRUPTED))?;
    show_report(args, &report, (&kept, cache.dir()))
}

const INTERRUPTED: &str =
    "interrupted; paths that stay have their references, and another floe cache gc goes on";

/// The number of paths and pins that stay.
struct Kept {
    paths: usize,
    pins: usize,
}

impl Kept {
    fn of(marked: &Marked) -> Kept {
        Kept {
            paths: marked.kept_paths(),
            pins: marked.pins(),
        }
    }
}

pub(super) fn show(event: CollectionEvent<'_>) {
    match event {
        CollectionEvent::IncompletePin { pin, missing } => warn(format_args!(
            "the pin {pin} is incomplete: the cache lacks the path with the hash part {missing}; \
             push its path again"
        )),
        CollectionEvent::UnusableNarInfo { name, reason } => {
            warn(format_args!(
                "keeping {name}, which cannot be used: {reason}"
            ));
        }
        CollectionEvent::Waiting { time } => eprint_line(format_args!(
            "waiting {} for pushes to notice the collection",
            seconds(time)
        )),
        CollectionEvent::WaitingForPushes { pushes } => eprint_line(format_args!(
            "waiting for {} to notice the collection or to end",
            counted(pushes, "writer")
        )),
        CollectionEvent::Deleting { objects } => {
            eprint_line(format_args!("deleting {}", counted(objects, "object")));
        }
    }
}

fn show_report(
    args: &CacheGcArgs,
    report: &CollectionReport,
    (kept, dir): (&Kept, &StoreDir),
) -> anyhow::Result<()> {
    let paths = report.paths.iter().map(|path| dir.full_path(path));
    if args.of.json {
        print(json!({
            "paths": paths.collect::<Vec<_>>(),
            "files": report.files,
            "fileBytes": report.file_bytes,
            "pinGenerations": report.generations,
            "keptPaths": kept.paths + report.kept_for_pushes,
            "keptForPushes": report.kept_for_pushes,
            "pins": kept.pins,
        }))?;
    } else {
        paths.into_iter().try_for_each(print)?;
    }
    if report.kept_for_pushes > 0 {
        eprint_line(format_args!(
            "kept {} that a push or a new pin needs",
            counted(report.kept_for_pushes, "path")
        ));
    }
    let verb = if args.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    eprint_line(format_args!(
        "{verb} {} and {} ({}); {} of {} stay",
        counted(report.paths.len(), "path"),
        counted(report.files, "file"),
        Size(report.file_bytes),
        counted(kept.paths + report.kept_for_pushes, "path"),
        counted(kept.pins, "pin"),
    ));
    Ok(())
}

/// Shows a time in the largest unit that fits.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
