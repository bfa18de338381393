//! `floe install`: closures from binary caches into a store.

use floe_engine::Order;

use super::moving::{Move, run_move};
use crate::args::InstallArgs;
use crate::settings;

pub(crate) fn run(args: InstallArgs) -> anyhow::Result<()> {
    let store_dir = settings::store_dir(args.store_dir.as_deref())?;
    let target = settings::store(args.root.as_deref(), args.to.as_deref(), store_dir.as_ref())?;
    let sources = args
        .from
        .iter()
        .map(|text| settings::location(text, store_dir.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    run_move(Move {
        sources,
        order: Order::AsGiven,
        target,
        store_dir,
        options: settings::options(&args.trust, &args.work)?,
        json: args.work.json,
        paths: Some(args.paths),
    })
}
