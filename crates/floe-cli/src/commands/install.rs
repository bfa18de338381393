//! `floe install`: copies closures from binary caches into a store.

pub(crate) mod page;

use floe_copy::{CopyRequest, RequestedPaths, SourceOrder};
use floe_store::{StoreError, StoreLayout, StoreReader};
use floe_transfer::{Cancel, PathSpec, Session, StoreConfig};

use super::manage::warn_of_skipped_rows;
use super::run_copy::{CopyCommand, Follow, run_copy};
use super::verify::open_for_repair;
use crate::args::InstallArgs;
use crate::options::Settings;

pub(crate) fn run(args: InstallArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.transfer.options, args.store_dir.as_deref())?;
    let target = settings.target_store(args.root.as_deref(), args.store.as_deref())?;
    // Caches given with `--from` are tried in the given order.
    let order = match args.from.is_empty() {
        true => SourceOrder::ByPriority,
        false => SourceOrder::AsListed,
    };
    let sources = settings.sources(&args.from)?;
    let stores = [&target].into_iter().chain(&sources);
    let stores: Vec<&dyn StoreConfig> = stores.map(|store| &**store).collect();
    let paths = match args.paths.all {
        true => RequestedPaths::All,
        false => RequestedPaths::Named(settings.follow_links(&args.paths.read()?, &stores)),
    };
    if args.repair
        && let Some(layout) = target.layout()
    {
        record_damaged((&*target, layout), (&args, &paths), &settings)?;
    }
    let request = CopyRequest {
        order,
        ..CopyRequest::new(sources, target, paths)
    };
    let command = CopyCommand {
        name: "install",
        settings: &settings,
        args: &args.transfer,
        follow: &Follow::No,
        is_result: true,
    };
    run_copy(request, command)
}

/// Hashes the valid paths of the requested closures, and records those that are damaged, which the
/// copy then replaces.
fn record_damaged(
    (target, layout): (&dyn StoreConfig, &StoreLayout),
    (args, paths): (&InstallArgs, &RequestedPaths),
    settings: &Settings,
) -> anyhow::Result<()> {
    let store = match StoreReader::open(layout.clone()) {
        Err(StoreError::NoStore { .. }) => return Ok(()),
        store => store?,
    };
    let mut roots = Vec::new();
    match paths {
        RequestedPaths::All => roots = store.valid_paths()?,
        RequestedPaths::Named(paths) => {
            for text in paths {
                let spec = PathSpec::parse(text, &layout.store_dir)?;
                roots.extend(store.query_path_from_hash_part(spec.hash_part())?);
            }
        }
    }
    let closure = store.closure_paths(&roots)?;
    warn_of_skipped_rows(&store);
    if closure.is_empty() {
        return Ok(());
    }
    let damaged = store.verify(&closure, args.transfer.jobs, &())?;
    let damaged = damaged.damaged_paths(&layout.store_dir);
    if !damaged.is_empty() {
        let write = settings.write_options(&Cancel::default())?;
        if let Some(store) = open_for_repair(target, &Session::default(), &write)? {
            store.record_damaged(&damaged)?;
        }
    }
    Ok(())
}
