//! The arguments of `floe why`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::{LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, TrustArgs};
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Ask this binary cache or store; may be repeated [default: the substituters of nix.conf, else
    /// https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Query caches again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Store paths, links such as ./result, or names of packages
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
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
