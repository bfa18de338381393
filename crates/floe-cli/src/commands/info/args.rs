//! The arguments of `floe info`.

use clap::Args;

use crate::args::{LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, PathArgs};

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Query this store or binary cache [default: the store of --root or --store]
    #[arg(long, value_name = "URL|STORE", conflicts_with_all = ["root", "store"])]
    pub(crate) from: Option<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Query caches again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Show whole closures
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Print one JSON object, as `nix path-info --json` does
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
