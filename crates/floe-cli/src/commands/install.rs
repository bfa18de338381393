//! `floe install`: copies closures from binary caches into a store.

use floe_config::store_in_root;
use floe_copy::{CopyRequest, RequestedPaths, SourceOrder};

use super::run_copy::run_copy;
use crate::args::InstallArgs;
use crate::options::Settings;

pub(crate) fn run(args: InstallArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.transfer.options, args.store_dir.as_deref())?;
    let target = match &args.root {
        Some(root) => store_in_root(root, settings.store_dir.as_ref())?,
        None => settings.resolve(args.to.as_deref().unwrap_or("auto"))?,
    };
    // Caches given with `--from` are tried in the given order.
    let order = match args.from.is_empty() {
        true => SourceOrder::ByPriority,
        false => SourceOrder::AsListed,
    };
    let sources = settings.sources(&args.from)?;
    let paths = RequestedPaths::Named(args.paths);
    let request = CopyRequest {
        order,
        ..CopyRequest::new(sources, target, paths)
    };
    run_copy("install", request, &settings, &args.transfer)
}
