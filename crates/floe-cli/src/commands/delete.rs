//! `floe delete`: deletes given paths that nothing keeps.

pub(crate) mod args;
pub(crate) mod page;

use std::fs;

use anyhow::anyhow;
use floe_format::{StoreDir, StorePath};
use floe_store::{
    AlivePath, Collector, DeadFile, DeleteError, DeleteOptions, RootPlace, StoreReader,
};
use floe_transfer::{Cancel, PathSpec};
use serde_json::json;

use super::gc::{StoreProgress, dead_to_json, print_dead, report};
use crate::args::read_paths;
use crate::display::warn;
use crate::messages::{escaped, kept_rows};
use crate::path_names;
use crate::signals;
use crate::stdout::print;
use crate::store_choice::LocalStore;
use args::DeleteArgs;

pub(crate) fn run(args: &DeleteArgs) -> anyhow::Result<()> {
    let store = LocalStore::find(&args.store)?;
    let layout = &store.layout;
    let reader = store.open()?;
    let mut paths = parse_paths(&read_paths(&args.paths, false)?, &reader)?;
    skip_absent(&reader, &mut paths)?;
    let options = DeleteOptions {
        recursive: args.recursive,
        skip_alive: args.skip_alive,
        also_referrers: args.also_referrers,
        ignore_liveness: args.ignore_liveness,
    };
    let gc_settings = store.settings.gc_settings(&*store.config);
    let dir = &layout.store_dir;
    if args.dry_run {
        let dead = reader.find_deletable(&paths, options, &gc_settings);
        kept_rows(&reader.skipped_rows()).into_iter().for_each(warn);
        return show(args, &dead.map_err(|error| describe(error, dir))?, dir);
    }
    drop(reader);
    store.prepare_writing()?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let collector = Collector::open(layout.clone(), &store.settings.write_options(&cancel)?)?;
    let progress = StoreProgress::start(cancel, "deleted");
    let (results, deleted) = collector.delete(&paths, options, &gc_settings, &progress);
    drop(progress);
    let deleted = deleted.map_err(|error| describe(error, dir));
    report(&results, deleted, args.store.json)
}

/// Shows what would be deleted.
fn show(args: &DeleteArgs, dead: &[DeadFile], dir: &StoreDir) -> anyhow::Result<()> {
    if args.store.json {
        let bytes: u64 = dead.iter().map(|file| file.bytes).sum();
        return print(json!({ "dead": dead_to_json(dead, dir), "bytes": bytes }));
    }
    print_dead(dead, dir, "nothing to delete: all of these paths are alive")
}

/// Parses the paths. A path that is not valid may be on disk.
fn parse_paths(texts: &[String], reader: &StoreReader) -> anyhow::Result<Vec<StorePath>> {
    let layout = reader.layout();
    let texts = path_names::follow(layout, texts)?;
    let paths = texts.iter().map(|text| {
        let spec = PathSpec::parse(text, &layout.store_dir)?;
        Ok(spec.find_in_store(reader)?)
    });
    paths.collect()
}

/// Removes the paths that are neither valid nor on disk, with a warning each, as nix-store ignores
/// them.
pub(super) fn skip_absent(reader: &StoreReader, paths: &mut Vec<StorePath>) -> anyhow::Result<()> {
    let mut present = Vec::new();
    for path in paths.drain(..) {
        let is_on_disk = fs::symlink_metadata(reader.real_path(&path)).is_ok();
        if is_on_disk || reader.path_info(&path)?.is_some() {
            present.push(path)
        } else {
            warn(format_args!(
                "skipping {}: this store does not have it",
                reader.layout().store_dir.full_path(&path)
            ))
        }
    }
    *paths = present;
    Ok(())
}

pub(super) fn describe(error: DeleteError, dir: &StoreDir) -> anyhow::Error {
    let print = |path: &StorePath| dir.full_path(path);
    match error {
        DeleteError::NotInStore(path) => {
            let path = print(&path);
            anyhow!("cannot delete {path}: this store does not have it")
        }
        DeleteError::Alive { path, obstacle } => {
            let (AlivePath::Root { chain, .. }
            | AlivePath::InUse { chain }
            | AlivePath::DamagedRow { chain }
            | AlivePath::LostReference { chain }
            | AlivePath::Referrer { chain }) = &obstacle;
            let chain: Vec<String> = chain.iter().map(print).collect();
            anyhow!(alive(&print(&path), &obstacle, &chain))
        }
        DeleteError::Store(error) => anyhow::Error::from(error),
    }
}

fn alive(path: &str, obstacle: &AlivePath, chain: &[String]) -> String {
    let first = chain.first().map_or(path, String::as_str);
    let chain = match chain {
        [] | [_] => String::new(),
        chain => format!(" ({})", chain.join(" -> ")),
    };
    match obstacle {
        AlivePath::Root {
            place: RootPlace::Link(place),
            ..
        } => format!(
            "cannot delete {path}: the root {} keeps it{chain}; remove the root first, or try \
             --skip-alive",
            escaped(place.display())
        ),
        AlivePath::Root { place, .. } => format!(
            "cannot delete {path}: the {} keeps it{chain}; wait for the end of the process, or try \
             --skip-alive",
            escaped(used(place, first))
        ),
        AlivePath::InUse { .. } => format!(
            "cannot delete {path}: a process uses it{chain}; wait for its end, or try --skip-alive"
        ),
        AlivePath::DamagedRow { .. } => format!(
            "cannot delete {path}: a damaged row of the database names it{chain}; try floe verify \
             --repair first"
        ),
        AlivePath::LostReference { .. } => format!(
            "cannot delete {path}: {first} has lost a reference in the database, which may be this \
             path; try floe verify --repair first"
        ),
        AlivePath::Referrer { .. } => format!(
            "cannot delete {path}: another path refers to it{chain}; try --also-referrers, which \
             deletes that too"
        ),
    }
}

/// Returns the use of a path by a process: that of a file below `/proc`, in words.
fn used(place: &RootPlace, path: &str) -> String {
    let described = place.describe_use(path);
    described.unwrap_or_else(|| format!("root {place}"))
}
