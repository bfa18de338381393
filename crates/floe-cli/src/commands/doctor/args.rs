//! The arguments of `floe doctor`.

use clap::Args;

use crate::args::{LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, TrustArgs};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check this binary cache or store; may be repeated [default: the substituters of nix.conf,
    /// else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Check nothing behind a network: neither caches nor name sources
    #[arg(long, conflicts_with = "from")]
    pub(crate) offline: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Only enter a namespace, in a process of its own
    #[arg(long, hide = true)]
    pub(crate) enter_namespace: bool,
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
