//! The options of nix-store.

use clap::Args;

use crate::args::{LocalStoreArgs, OptionArgs, OutputArgs};

/// Options of `floe nix-store`, which are those of Nix's command.
#[derive(Clone, Debug, Args)]
pub(crate) struct NixStoreArgs {
    /// Serve the store over standard input and output, to a client that uses ssh://
    #[arg(long)]
    pub(crate) serve: bool,
    /// With --serve, let the client add paths
    #[arg(long, requires = "serve")]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
