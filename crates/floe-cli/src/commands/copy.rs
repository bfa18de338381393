//! `floe copy`: copies closures between stores and binary caches.

use floe_copy::{CopyRequest, RequestedPaths};

use super::run_copy::{CopyCommand, run_copy};
use crate::args::CopyArgs;
use crate::options;

pub(crate) fn run(args: CopyArgs) -> anyhow::Result<()> {
    let environment = options::environment();
    let store_dir = options::store_dir(args.store_dir.as_deref())?;
    let config = options::load_config(&args.options, &environment)?;
    let resolve = |uri| config.resolve_store_uri(uri, store_dir.as_ref(), &environment);
    let (source, target) = (resolve(&args.from)?, resolve(&args.to)?);
    let paths = match args.all {
        true => RequestedPaths::All,
        false => RequestedPaths::Named(args.paths),
    };
    let copy_args = (&args.trust, &args.store_files, &args.transfer);
    let ends = (&*target, store_dir.as_ref());
    let options = options::copy_options((&config, &environment), ends, copy_args)?;
    let request = CopyRequest {
        network: config.network(),
        store_dir,
        write: options::write_options(&config, &options.cancel)?,
        options,
        ..CopyRequest::new(vec![source], target, paths)
    };
    run_copy(CopyCommand {
        name: "copy",
        request,
        gc_roots: args.gc_roots,
        trace: args.trace,
        json: args.transfer.json,
    })
}
