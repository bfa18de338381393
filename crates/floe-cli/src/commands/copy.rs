//! `floe copy`: copies closures between stores and binary caches.

use floe_copy::SourceOrder;

use super::run_copy::{CopyRequest, run_copy};
use crate::args::CopyArgs;
use crate::options;

pub(crate) fn run(args: CopyArgs) -> anyhow::Result<()> {
    let environment = options::environment();
    let store_dir = options::store_dir(args.store_dir.as_deref())?;
    let config = options::load_config(&args.options, &environment)?;
    let copy_args = (&args.trust, &args.store_files, &args.transfer);
    let options = options::copy_options((&config, &environment), store_dir.as_ref(), copy_args)?;
    run_copy(CopyRequest {
        write: options::write_options(&config, &options.cancel)?,
        sources: vec![config.resolve_store_uri(&args.from, store_dir.as_ref(), &environment)?],
        order: SourceOrder::AsListed,
        network: config.network(),
        target: config.resolve_store_uri(&args.to, store_dir.as_ref(), &environment)?,
        options,
        store_dir,
        json: args.transfer.json,
        store_files: args.store_files,
        gc_roots: args.gc_roots,
        trace: args.trace,
        name: "copy",
        paths: (!args.all).then_some(args.paths),
    })
}
