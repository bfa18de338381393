//! `floe copy`: copies closures between stores and binary caches.

pub(crate) mod page;

use anyhow::bail;
use floe_copy::{CopyRequest, RequestedPaths};

use super::run_copy::{CopyCommand, Follow, run_copy};
use crate::args::{CopyArgs, LocalStoreArgs};
use crate::display::warn;
use crate::exit::UsageError;
use crate::messages::copy::{FOLLOWS_NOTHING, UNUSED_LOCAL_STORE, ignored_trusted};
use crate::options::Settings;

pub(crate) fn run(args: CopyArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.transfer.options, args.store_dir.as_deref())?;
    if args.follow && !args.paths.use_stdin() {
        bail!(UsageError(FOLLOWS_NOTHING.into()));
    }
    let LocalStoreArgs { root, store } = &args.local;
    if args.from.is_some() && args.to.is_some() && (root.is_some() || store.is_some()) {
        bail!(UsageError(UNUSED_LOCAL_STORE.into()));
    }
    let source = match &args.from {
        Some(uri) => settings.resolve(uri)?,
        None => settings.local_store(root.as_deref(), store.as_deref())?,
    };
    let target = match &args.to {
        Some(uri) => settings.resolve_target(uri)?,
        None => settings.target_store(root.as_deref(), store.as_deref())?,
    };
    let paths = match (args.paths.all, args.follow) {
        (true, _) => RequestedPaths::All,
        // The others come later.
        (false, true) => RequestedPaths::Named(args.paths.named()),
        (false, false) => RequestedPaths::Named(args.paths.read()?),
    };
    let paths = match paths {
        RequestedPaths::Named(paths) => {
            RequestedPaths::Named(settings.follow_links(&paths, &[&*target, &*source]))
        }
        all => all,
    };
    let follow = match args.follow {
        true => Follow::Stdin,
        false => Follow::No,
    };
    let trust = &args.transfer.trust;
    if source.facts().is_trusted
        && target.layout().is_some()
        && settings.check_signatures(trust, &*target)
    {
        warn(ignored_trusted(&source));
    }
    let mut request = CopyRequest::new(vec![source], target, paths);
    request.options.obey_trusted = false;
    request.substitute_on_destination = args.substitute_on_destination;
    let command = CopyCommand {
        name: "copy",
        settings: &settings,
        args: &args.transfer,
        follow: &follow,
        is_result: true,
    };
    run_copy(request, command)
}
