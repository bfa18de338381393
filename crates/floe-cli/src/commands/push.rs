//! `floe push`: copies closures of the local store into a binary cache, compressed and signed.

pub(crate) mod args;
pub(crate) mod page;

use std::path::PathBuf;

use anyhow::bail;
use floe_config::{StoreAccess, StoreChoice, StoreFlags, build_log_dir};
use floe_copy::CopyRequest;
use floe_store::StoreLayout;

use crate::copying::{CopyAction, Copying, Follow};
use crate::display::warn;
use crate::exit::UsageError;
use crate::options::{Settings, environment};
use crate::package_names::PackageNames;
use args::PushArgs;

pub(crate) fn run(args: &PushArgs) -> anyhow::Result<()> {
    let mut settings = Settings::load(&args.options, args.store_dir.as_deref())?;
    settings.set_push_defaults(&args.secret_key_file, args.check)?;
    let path_args = args.paths();
    if args.follow {
        path_args.check_follow()?;
    }
    let source = settings.store(args.local.choice(), StoreAccess::Read)?;
    let target = target_uri(args, &settings)?;
    let target = settings.store(StoreChoice::Uri(target), StoreAccess::Read)?;
    if target.layout().is_some() {
        bail!(UsageError(format!(
            "cannot push to {target}: it is not a binary cache; use floe copy --to {target}"
        )));
    }
    if !args.secret_key_file.is_empty() && target.facts().secret_key_files.is_empty() {
        warn(format_args!(
            "ignoring --secret-key-file for {target}: floe signs only for binary caches"
        ));
    }
    let follow = match (args.follow, args.watch_store, source.layout()) {
        (true, ..) => Follow::Stdin,
        (false, true, Some(layout)) => Follow::Store(layout.clone()),
        (false, true, None) => bail!(UsageError(format!(
            "cannot watch {source}: it is not a local store; name one with --root or --store"
        ))),
        (false, false, _) => Follow::No,
    };
    let store_dir = source.layout().map(|layout| &layout.store_dir);
    let options = (store_dir, false);
    let mut packages = PackageNames::new(&settings, &args.names, options)?;
    let (paths, names) = follow.first_paths(&path_args, &mut packages, (&*source, &*target))?;
    let transfer = args.transfer();
    let command = Copying {
        action: CopyAction::Push,
        settings: &settings,
        args: &transfer,
        follow: &follow,
        names: &names,
        earlier: &|_| None,
        is_result: true,
    };
    let build_logs = match source.layout().filter(|_| args.build_logs) {
        Some(layout) => Some(log_dir(args, &settings, layout)?),
        None => None,
    };
    let upstreams = args.skip_upstream.iter();
    let upstreams = upstreams.map(|uri| settings.store(StoreChoice::Uri(uri), StoreAccess::Read));
    let request = CopyRequest {
        build_logs,
        upstreams: upstreams.collect::<anyhow::Result<_>>()?,
        // The user has named none of them.
        may_skip_requested: args.watch_store || path_args.all,
        ..CopyRequest::new(vec![source], target, paths)
    };
    command.run(request)
}

/// Returns the directory with the build logs of the store.
fn log_dir(args: &PushArgs, settings: &Settings, layout: &StoreLayout) -> anyhow::Result<PathBuf> {
    let configured = settings.config.store.get();
    let flags = StoreFlags {
        root: args.local.root.as_deref(),
        store: Some(args.local.store.as_deref().unwrap_or(configured)),
        store_dir: args.store_dir.as_deref(),
    };
    Ok(build_log_dir(layout, &flags, &environment())?)
}

/// Returns the URI of the cache.
fn target_uri<'a>(args: &'a PushArgs, settings: &'a Settings) -> anyhow::Result<&'a str> {
    match args.to.as_deref().unwrap_or(settings.config.push_to.get()) {
        "" => bail!(UsageError(
            "cannot push: no cache is named; add --to URL, or set push-to in nix.conf".into()
        )),
        uri => Ok(uri),
    }
}
