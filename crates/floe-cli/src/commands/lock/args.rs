//! The arguments of `floe lock`.

use clap::Args;

use crate::args::{LogArgs, NameArgs, OptionArgs, OutputArgs, TrustArgs};

#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// The names of packages
    #[arg(value_name = "NAME", required = true)]
    pub(crate) packages: Vec<String>,
    /// Query this binary cache for pins and NAR hashes; may be repeated, and is tried in this order
    /// [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Ask name sources again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
