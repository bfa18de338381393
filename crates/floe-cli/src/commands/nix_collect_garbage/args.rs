//! The options of nix-collect-garbage.

use clap::Args;
use floe_config::ByteSize;

use crate::args::{LocalStoreArgs, OptionArgs, OutputArgs, parse_freed};

/// Options of `floe nix-collect-garbage`, which are those of Nix's command.
#[derive(Clone, Debug, Args)]
pub(crate) struct NixCollectGarbageArgs {
    /// Delete all generations of all profiles except the current ones first
    #[arg(long, short = 'd')]
    pub(crate) delete_old: bool,
    /// Delete generations that were not in use within this time first, such as 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) delete_older_than: Option<String>,
    /// End after this number of bytes is free
    #[arg(long, value_name = "BYTES", value_parser = parse_freed, allow_hyphen_values = true)]
    pub(crate) max_freed: Option<ByteSize>,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
