//! The arguments of `floe uninstall`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::StoreQueryArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Links, store paths, or the names of paths that a link or a profile keeps
    #[arg(required = true, value_name = "LINK|PATH|NAME")]
    #[arg(add = ArgValueCompleter::new(completions::kept_names))]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
