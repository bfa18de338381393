//! `floe copy`: copies closures between stores and binary caches.

use floe_copy::{CopyRequest, RequestedPaths};

use super::run_copy::run_copy;
use crate::args::CopyArgs;
use crate::display::warn;
use crate::messages::copy::ignored_trusted;
use crate::options::Settings;

pub(crate) fn run(args: CopyArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.transfer.options, args.store_dir.as_deref())?;
    let (source, target) = (settings.resolve(&args.from)?, settings.resolve(&args.to)?);
    let paths = match args.all {
        true => RequestedPaths::All,
        false => RequestedPaths::Named(args.paths),
    };
    let trust = &args.transfer.trust;
    if source.is_trusted()
        && target.layout().is_some()
        && settings.check_signatures(trust, &*target)
    {
        warn(ignored_trusted(&source));
    }
    let mut request = CopyRequest::new(vec![source], target, paths);
    request.options.obey_trusted = false;
    run_copy("copy", request, &settings, &args.transfer)
}
