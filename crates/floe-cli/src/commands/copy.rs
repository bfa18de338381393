//! `floe copy`: closures between any store or cache and any other.

use floe_engine::SourceOrder;

use super::moving::{Move, run_move};
use crate::args::CopyArgs;
use crate::settings;

pub(crate) fn run(args: CopyArgs) -> anyhow::Result<()> {
    let store_dir = settings::store_dir(args.store_dir.as_deref())?;
    let config = settings::config(&args.options)?;
    let args_of_work = (&args.trust, &args.files, &args.work);
    let options = settings::options(&config, store_dir.as_ref(), args_of_work)?;
    run_move(Move {
        write: settings::write_options(&config, &options.cancel)?,
        sources: vec![settings::place(&args.from, &config, store_dir.as_ref())?],
        order: SourceOrder::AsListed,
        network: config.network(),
        target: settings::place(&args.to, &config, store_dir.as_ref())?,
        options,
        store_dir,
        json: args.work.json,
        files: args.files,
        keep: args.keep,
        trace: args.trace,
        name: "copy",
        paths: (!args.all).then_some(args.paths),
    })
}
