//! `floe gc`: deletes the paths that no root keeps.

pub(crate) mod args;
mod collection;
mod old_generations;
pub(crate) mod page;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use floe_store::{Collector, FileSystem, Garbage, GcSettings, StoreLayout};
use floe_transfer::{Cancel, Size};
use serde_json::{Value, json};

use crate::display::warn;
use crate::messages::{escaped, kept_rows};
use crate::options;
use crate::root_links::{warn_of_stale, warn_of_unreadable};
use crate::signals;
use crate::stdout::print;
use crate::store_choice::LocalStore;
use args::GcArgs;
pub(super) use collection::{StoreProgress, dead_to_json, print_dead, report, report_failures};
use collection::{dead_path, warn_of_circles};
use old_generations::OldGenerations;

pub(crate) fn run(args: &GcArgs) -> anyhow::Result<()> {
    let store = LocalStore::find(&args.store)?;
    let (settings, layout) = (&store.settings, &store.layout);
    let gc_settings = GcSettings {
        ignore_unregistered_roots: args.ignore_unregistered_roots,
        vacuums: args.vacuum,
        ..store.settings.gc_settings(&*store.config)
    };
    if args.print_roots {
        return print_roots(args, &store);
    }
    let is_dry = args.dry_run || args.print_dead || args.print_live;
    let cancel = Cancel::default();
    let lock_wait = options::lock_wait(cancel.flag());
    let mut old = OldGenerations::find(args, layout, settings)?;
    if is_dry {
        let reader = store.open_with(lock_wait)?;
        let garbage = reader.find_garbage(&gc_settings, &old.links())?;
        old.report(true);
        return show(args, &garbage, layout);
    }
    signals::cancel_on_signals(&cancel)?;
    store.note_hidden_store();
    store.prepare_writing()?;
    // A store that cannot be collected keeps its old generations. On a full disk, the collector
    // makes the space that the locks of the profiles need.
    let collector = Collector::open(layout.clone(), &settings.write_options(&cancel)?)?;
    let max_freed = max_freed(args, layout)?;
    if !old.is_empty() {
        let reader = store.open_with(lock_wait.clone())?;
        reader.check_roots(&gc_settings)?;
        drop(reader);
        old.delete(&lock_wait.for_at_most(PROFILE_LOCK_TIMEOUT))?;
        old.report(false);
    }
    let progress = StoreProgress::start(cancel, "deleted").announced();
    let (results, collected) = collector.collect(&gc_settings, max_freed, &progress);
    drop(progress);
    report(&results, collected, args.store.json)?;
    if let Some(wanted) = args.free
        && let Some(free) = FileSystem::of(&layout.real_store_dir)?.free_bytes
        && free < wanted.0
    {
        warn(format_args!(
            "only {} of the wanted {} are free: roots keep the other paths",
            Size(free),
            Size(wanted.0)
        ));
    }
    Ok(())
}

/// Returns how many bytes to free.
fn max_freed(args: &GcArgs, layout: &StoreLayout) -> anyhow::Result<Option<u64>> {
    let Some(wanted) = args.free else {
        return Ok(args.max_freed.map(|bytes| bytes.0));
    };
    let free = FileSystem::of(&layout.real_store_dir)?.free_bytes;
    let Some(free) = free else {
        bail!(
            "cannot find out the free space of {}: its file system does not count it; try \
             --max-freed BYTES",
            layout.real_store_dir.display()
        );
    };
    Ok(Some(wanted.0.saturating_sub(free)))
}

fn print_roots(args: &GcArgs, store: &LocalStore) -> anyhow::Result<()> {
    let (_, found) = store.open_and_find_roots()?;
    let layout = &store.layout;
    warn_of_stale(&found.stale);
    let roots = found.roots.iter().chain(&found.not_valid);
    if args.store.json {
        let roots = roots.map(|root| {
            let path = layout.store_dir.full_path(&root.path);
            json!({ "root": root.place.to_string(), "path": path })
        });
        return print(json!({ "roots": roots.collect::<Vec<Value>>() }));
    }
    for root in roots {
        let path = layout.store_dir.full_path(&root.path);
        // The line of `nix-store --gc --print-roots`.
        print(format_args!("{} -> {path}", escaped(&root.place)))?;
    }
    Ok(())
}

/// Shows what a collection would delete, or leave.
fn show(args: &GcArgs, garbage: &Garbage, layout: &StoreLayout) -> anyhow::Result<()> {
    warn_of_unreadable(&garbage.unreadable);
    warn_of_stale(&garbage.stale);
    kept_rows(&garbage.damaged_rows).into_iter().for_each(warn);
    let dir = &layout.store_dir;
    if args.print_live && args.store.json {
        let live = garbage.live.iter().map(|path| dir.full_path(path));
        return print(json!({ "live": live.collect::<Vec<String>>() }));
    }
    if args.print_live {
        let mut live = garbage.live.iter().map(|path| dir.full_path(path));
        return live.try_for_each(print);
    }
    warn_of_circles(&garbage.circular);
    if args.store.json {
        return print(json!({
            "dead": dead_to_json(&garbage.dead, dir),
            "bytes": garbage.dead.iter().map(|file| file.bytes).sum::<u64>(),
            "livePaths": garbage.live.len(),
        }));
    }
    if args.print_dead {
        let mut dead = garbage.dead.iter().map(|file| dead_path(file, dir));
        return dead.try_for_each(print);
    }
    let nothing = "nothing to delete: roots keep all paths in the store directory";
    print_dead(&garbage.dead, dir, nothing)
}

/// The links of generations that a dry run does not delete, and that keep nothing in it.
type IgnoredLinks = HashSet<PathBuf>;

/// Programs hold the lock of a profile for a moment. A lock that is held for longer must not keep a
/// whole collection waiting.
const PROFILE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
