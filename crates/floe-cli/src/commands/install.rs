//! `floe install`: copies closures from binary caches into a store.

pub(crate) mod args;
mod follow;
pub(crate) mod page;

use floe_config::{StoreAccess, StoreChoice};
use floe_copy::{CopyRequest, RequestedPaths};
use floe_names::ResolvedName;
use floe_store::{StoreError, StoreLayout, StoreReader};
use floe_transfer::{Cancel, DerivedPath, PathSpec, Session, StoreConfig};

use super::verify::repair::open_for_repair;
use crate::copying::{CopyAction, Copying, Follow};
use crate::options::Settings;
use crate::package_names::{FindEarlier, First, PackageNames};
use crate::path_names;
use crate::root_links::warn_of_skipped_rows;
use args::InstallArgs;

pub(crate) fn run(args: InstallArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.transfer.options, args.store_dir.as_deref())?;
    let choice = StoreChoice::of_flags(args.root.as_deref(), args.store.as_deref());
    let target = settings.store(choice, StoreAccess::Write)?;
    let request = settings.copy_from(&args.from, target, RequestedPaths::All)?;
    if let Some(name) = &args.follow {
        return follow::run(&args, &settings, (name, &request.sources), &*request.target);
    }
    if args.all {
        return copy(&args, &settings, (request, &[], &|_| None));
    }
    let stores = [&request.target].into_iter().chain(&request.sources);
    let stores: Vec<&dyn StoreConfig> = stores.map(|store| &**store).collect();
    let arguments = args.read_paths()?;
    let paths = settings.follow_links(&arguments, &stores)?;
    let layout = request.target.layout();
    let store_dir = layout.map(|layout| &layout.store_dir);
    let options = (store_dir, args.transfer.refresh);
    let mut packages = PackageNames::new(&settings, &args.names, options)?;
    packages.set_keys(settings.trusted_keys(&args.transfer.trust)?);
    if !args.from.is_empty() {
        packages.set_caches(&request.sources);
    }
    let found = match layout {
        Some(layout) => packages.find((&arguments, paths), (layout, First::Sources))?,
        None => packages.resolve(&arguments, path_names::as_files(paths))?,
    };
    packages.copy_newest(found, |found, earlier| {
        let request = CopyRequest {
            order: request.order,
            ..CopyRequest::new(
                request.sources.clone(),
                request.target.clone(),
                RequestedPaths::Named(found.texts.clone()),
            )
        };
        copy(&args, &settings, (request, &found.names, earlier))
    })?;
    Ok(())
}

fn copy(
    args: &InstallArgs,
    settings: &Settings,
    (request, names, earlier): (CopyRequest, &[ResolvedName], &FindEarlier<'_>),
) -> anyhow::Result<()> {
    if args.repair
        && let Some(layout) = request.target.layout()
    {
        record_damaged((&request, layout), args, settings)?;
    }
    let command = Copying {
        action: CopyAction::Install,
        settings,
        args: &args.transfer,
        follow: &Follow::No,
        names,
        earlier,
        is_result: true,
    };
    command.run(request)
}

/// Hashes the valid paths of the requested closures, and records those that are damaged, which the
/// copy then replaces.
fn record_damaged(
    (request, layout): (&CopyRequest, &StoreLayout),
    args: &InstallArgs,
    settings: &Settings,
) -> anyhow::Result<()> {
    let store = match StoreReader::open(layout.clone()) {
        Err(StoreError::NoStore { .. }) => return Ok(()),
        store => store?,
    };
    let mut roots = Vec::new();
    match &request.paths {
        RequestedPaths::All => roots = store.valid_paths()?,
        RequestedPaths::Named(paths) => {
            // The outputs of derivations are known later.
            for text in paths.iter().filter(|text| !DerivedPath::is_one(text)) {
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
        if let Some(store) = open_for_repair(&*request.target, &Session::default(), &write)? {
            store.record_damaged(&damaged)?;
        }
    }
    Ok(())
}
