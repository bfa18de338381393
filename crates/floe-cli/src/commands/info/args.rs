//! The arguments of `floe info`.

use clap::Args;

use crate::args::{
    LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, PathArgs, SourceArgs,
};

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
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
