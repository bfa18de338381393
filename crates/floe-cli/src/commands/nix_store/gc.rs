//! `nix-store --gc` and `--delete`.

use std::collections::HashSet;

use floe_store::{Collector, DeleteOptions, GcResults};
use floe_transfer::Cancel;

use super::args::NixStoreArgs;
use super::paths::Paths;
use crate::commands::delete::{describe, skip_absent};
use crate::commands::gc::{StoreProgress, report_failures};
use crate::messages::escaped;
use crate::signals;
use crate::stdout::print;
use crate::store_choice::LocalStore;

pub(super) fn collect(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let settings = store.settings.gc_settings(&*store.config);
    let dir = &store.layout.store_dir;
    if args.print_roots {
        let (_, found) = store.open_and_find_roots()?;
        let mut lines: Vec<String> = found
            .roots
            .iter()
            .map(|root| format!("{} -> {}", escaped(&root.place), dir.full_path(&root.path)))
            .collect();
        lines.sort();
        return lines.iter().try_for_each(print);
    }
    if args.print_live || args.print_dead {
        let garbage = store.open()?.find_garbage(&settings, &HashSet::new())?;
        let mut paths: Vec<String> = if args.print_live {
            garbage
                .live
                .iter()
                .map(|path| dir.full_path(path))
                .collect()
        } else {
            let dead = garbage.dead.iter();
            dead.map(|file| escaped(format!("{dir}/{}", file.name.to_string_lossy())))
                .collect()
        };
        paths.sort();
        return paths.iter().try_for_each(print);
    }
    let (collector, progress) = begin(&store)?;
    let max_freed = args.max_freed.map(|bytes| bytes.0);
    let (results, collected) = collector.collect(&settings, max_freed, &progress);
    drop(progress);
    print_freed(&results)?;
    collected?;
    report_failures(&results)
}

pub(super) fn delete(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let settings = store.settings.gc_settings(&*store.config);
    let mut paths = Paths::read(args, &store)?.into_paths()?;
    skip_absent(&store.open()?, &mut paths)?;
    let (collector, progress) = begin(&store)?;
    let options = DeleteOptions {
        ignore_liveness: args.ignore_liveness,
        ..DeleteOptions::default()
    };
    let (results, deleted) = collector.delete(&paths, options, &settings, &progress);
    drop(progress);
    print_freed(&results)?;
    deleted.map_err(|error| describe(error, &store.layout.store_dir))?;
    report_failures(&results)
}

/// Opens a store for a deletion, which a signal ends.
fn begin(store: &LocalStore) -> anyhow::Result<(Collector, StoreProgress)> {
    store.prepare_writing()?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let options = store.settings.write_options(&cancel)?;
    let collector = Collector::open(store.layout.clone(), &options)?;
    Ok((collector, StoreProgress::start(cancel, "deleted")))
}

/// Prints the line of Nix (`printFreed`).
fn print_freed(results: &GcResults) -> anyhow::Result<()> {
    let (paths, freed) = (results.paths, rendered(results.bytes_freed));
    print(format_args!("{paths} store paths deleted, {freed} freed"))
}

/// Returns a size as Nix prints it since 2.33 (`renderSize`).
fn rendered(bytes: u64) -> String {
    let mut size = bytes as f64 / 1024.0;
    let mut units = "KMGTPEZY".chars();
    let mut unit = units.next();
    while size > 1024.0
        && let Some(next) = units.next()
    {
        size /= 1024.0;
        unit = Some(next);
    }
    format!("{size:.1} {}iB", unit.unwrap_or('K'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_nix() {
        for (bytes, expected) in [
            (0, "0.0 KiB"),
            (1536, "1.5 KiB"),
            (5 << 20, "5.0 MiB"),
            (3 << 40, "3.0 TiB"),
        ] {
            assert_eq!(rendered(bytes), expected);
        }
    }
}
