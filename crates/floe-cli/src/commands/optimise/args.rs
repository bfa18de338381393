//! The arguments of `floe optimise`.

use std::num::NonZeroUsize;

use clap::Args;

use crate::args::{StoreQueryArgs, parse_count};

#[derive(Debug, Args)]
pub(crate) struct OptimiseArgs {
    /// Show how much space equal files would save, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Read at most this many paths at once [default: chosen for the processor]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
