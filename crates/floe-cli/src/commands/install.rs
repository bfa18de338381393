//! `floe install`: closures from binary caches into a store.

use floe_engine::SourceOrder;

use super::moving::{Move, run_move};
use crate::args::InstallArgs;
use crate::settings;

pub(crate) fn run(args: InstallArgs) -> anyhow::Result<()> {
    let store_dir = settings::store_dir(args.store_dir.as_deref())?;
    let config = settings::config(&args.options)?;
    let target = match (&args.root, &args.to) {
        (Some(root), _) => settings::in_root(root, store_dir.as_ref())?,
        (None, named) => {
            let named = named.as_deref().unwrap_or("auto");
            settings::place(named, &config, store_dir.as_ref())?
        }
    };
    // Whoever names caches has put them in order.
    let order = match args.from.is_empty() {
        true => SourceOrder::ByPriority,
        false => SourceOrder::AsListed,
    };
    let args_of_work = (&args.trust, &args.files, &args.work);
    let options = settings::options(&config, store_dir.as_ref(), args_of_work)?;
    run_move(Move {
        write: settings::write_options(&config, &options.cancel)?,
        order,
        network: config.network(),
        sources: settings::sources(&args.from, &config, store_dir.as_ref())?,
        target,
        options,
        store_dir,
        json: args.work.json,
        files: args.files,
        keep: args.keep,
        trace: args.trace,
        name: "install",
        paths: Some(args.paths),
    })
}
