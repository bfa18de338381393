//! The arguments of `floe copy-sigs`.

use clap::Args;

use crate::args::{LocalStoreArgs, LogArgs, OptionArgs, OutputArgs, PathArgs};

#[derive(Debug, Args)]
pub(crate) struct CopySigsArgs {
    /// Copy the signatures of this binary cache or store; may be repeated [default: the
    /// substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, short = 's', alias = "substituter", value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Add them to the paths of this store or binary cache [default: the store of --root or
    /// --store]
    #[arg(long, value_name = "STORE|URL", conflicts_with_all = ["root", "store"])]
    pub(crate) to: Option<String>,
    /// Copy also the signatures of the closures of the paths
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
