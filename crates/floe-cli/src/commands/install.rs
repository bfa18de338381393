//! `floe install`: copies closures from binary caches into a store.

use floe_copy::{CopyRequest, RequestedPaths, SourceOrder};

use super::run_copy::{CopyCommand, run_copy};
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
    let sources = options::sources(&args.from, (&config, &environment), store_dir.as_ref())?;
    let copy_args = (&args.trust, &args.store_files, &args.transfer);
    let ends = (&*target, store_dir.as_ref());
    let options = options::copy_options((&config, &environment), ends, copy_args)?;
    let request = CopyRequest {
        order,
        network: config.network(),
        store_dir,
        write: options::write_options(&config, &options.cancel)?,
        options,
        ..CopyRequest::new(sources, target, RequestedPaths::Named(args.paths))
    };
    run_copy(CopyCommand {
        name: "install",
        request,
        gc_roots: args.gc_roots,
        trace: args.trace,
        json: args.transfer.json,
    })
}
