//! The arguments of `floe list`.

use clap::Args;

use crate::args::StoreQueryArgs;

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show also the valid paths that no root keeps
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
