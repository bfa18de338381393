//! `floe copy`: copies closures between stores and binary caches.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use floe_config::StoreAccess;
use floe_copy::CopyRequest;

use crate::copying::{CopyAction, Copying, Follow};
use crate::display::warn;
use crate::exit::UsageError;
use crate::options::Settings;
use crate::package_names::PackageNames;
use args::CopyArgs;

pub(crate) fn run(args: CopyArgs) -> anyhow::Result<()> {
    let mut settings = Settings::load(&args.transfer.options, args.store_dir.as_deref())?;
    settings.context.check_present = args.check;
    if args.follow {
        args.paths.check_follow()?;
    }
    let has_local = args.local.root.is_some() || args.local.store.is_some();
    if args.from.is_some() && args.to.is_some() && has_local {
        bail!(UsageError(
            "cannot use --root or --store: --from and --to name both ends of the copy; leave out \
             one of them"
                .into()
        ));
    }
    let (from, to) = (args.from.as_deref(), args.to.as_deref());
    let source = settings.store_or(from, &args.local, StoreAccess::Read)?;
    let target = settings.store_or(to, &args.local, StoreAccess::Write)?;
    let follow = if args.follow {
        Follow::Stdin
    } else {
        Follow::No
    };
    let layout = source.layout().or(target.layout());
    let store_dir = layout.map(|layout| &layout.store_dir);
    let options = (store_dir, args.transfer.refresh);
    let mut packages = PackageNames::new(&settings, &args.names, options)?;
    packages.set_keys(settings.trusted_keys(&args.transfer.trust)?);
    if args.from.is_some() {
        packages.set_caches(std::slice::from_ref(&source));
    }
    let (paths, names) = follow.first_paths(&args.paths, &mut packages, (&*source, &*target))?;
    let trust = &args.transfer.trust;
    if source.facts().is_trusted
        && target.layout().is_some()
        && settings.check_signatures(trust, &*target)
    {
        warn(format_args!(
            "ignoring the parameter trusted of {source}: only floe install obeys it; use \
             --no-check-sigs to copy paths without a trusted signature"
        ));
    }
    let mut request = CopyRequest::new(vec![source], target, paths);
    request.options.obey_trusted = false;
    request.substitute_on_destination = args.substitute_on_destination;
    let command = Copying {
        action: CopyAction::Copy,
        settings: &settings,
        args: &args.transfer,
        follow: &follow,
        names: &names,
        earlier: &|_| None,
        is_result: true,
    };
    command.run(request)
}
