//! The arguments of `floe delete`.

use clap::Args;

use crate::args::StoreQueryArgs;

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete also the closures of the paths
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Leave the paths that are alive, and delete the others
    #[arg(long)]
    pub(crate) skip_alive: bool,
    /// Delete also the paths that refer to the paths
    #[arg(long)]
    pub(crate) also_referrers: bool,
    /// Delete paths even if roots keep them; the roots then point to nothing
    #[arg(long)]
    pub(crate) ignore_liveness: bool,
    /// Store paths, hash parts, links to store paths, or names of paths
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
