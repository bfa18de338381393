//! `floe restore`: unpacks a NAR.

pub(crate) mod args;
pub(crate) mod page;

use std::io;

use floe_store::tree::restore_path;

use args::RestoreArgs;

pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    Ok(restore_path(&args.place, &mut io::stdin().lock())?)
}
