//! How the files of a move get onto the disk.

use clap::Args;

/// What a store's files are made of.
#[derive(Debug, Default, Args)]
pub(crate) struct FilesArgs {
    /// Make equal files of the store one, as nix-store --optimise does
    /// [default: auto-optimise-store of nix.conf]
    #[arg(long)]
    pub(crate) optimise: bool,
}
