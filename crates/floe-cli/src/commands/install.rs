//! `floe install`: copies closures from binary caches into a store.

use floe_copy::SourceOrder;

use super::run_copy::{CopyRequest, run_copy};
use crate::args::InstallArgs;
use crate::options;

pub(crate) fn run(args: InstallArgs) -> anyhow::Result<()> {
    let environment = options::environment();
    let store_dir = options::store_dir(args.store_dir.as_deref())?;
    let config = options::load_config(&args.options, &environment)?;
    let target = match (&args.root, &args.to) {
        (Some(root), _) => floe_config::store_in_root(root, store_dir.as_ref())?,
        (None, named) => {
            let named = named.as_deref().unwrap_or("auto");
            config.resolve_store_uri(named, store_dir.as_ref(), &environment)?
        }
    };
    // Caches given with `--from` are tried in the given order.
    let order = match args.from.is_empty() {
        true => SourceOrder::ByPriority,
        false => SourceOrder::AsListed,
    };
    let copy_args = (&args.trust, &args.store_files, &args.transfer);
    let options = options::copy_options((&config, &environment), store_dir.as_ref(), copy_args)?;
    run_copy(CopyRequest {
        write: options::write_options(&config, &options.cancel)?,
        order,
        network: config.network(),
        sources: options::sources(&args.from, (&config, &environment), store_dir.as_ref())?,
        target,
        options,
        store_dir,
        json: args.transfer.json,
        store_files: args.store_files,
        gc_roots: args.gc_roots,
        trace: args.trace,
        name: "install",
        paths: Some(args.paths),
    })
}
