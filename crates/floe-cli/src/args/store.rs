//! The local store of a command.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{OptionArgs, OutputArgs};

/// The local store.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct LocalStoreArgs {
    /// The local store is below this directory (DIR/nix/store)
    #[arg(value_hint = ValueHint::DirPath, long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// The local store: a directory, local?root=DIR, or auto [default: auto]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

/// The local store, and how its contents are shown.
#[derive(Debug, Args)]
pub(crate) struct StoreQueryArgs {
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
