//! How the files of a move get onto the disk.

use clap::{Args, ValueEnum};
use floe_engine::ReuseBy;

/// What a store's files are made of.
#[derive(Debug, Default, Args)]
pub(crate) struct StoreFileArgs {
    /// Take paths that this store, or directory of store paths, has already, after hashing them;
    /// may be repeated
    #[arg(long, value_name = "STORE")]
    pub(crate) reuse: Vec<String>,
    /// How their files are taken [default: reflink]
    #[arg(long, value_name = "WAY", requires = "reuse")]
    pub(crate) reuse_by: Option<ReuseMode>,
    /// Make equal files of the store one, as nix-store --optimise does
    /// [default: auto-optimise-store of nix.conf]
    #[arg(long)]
    pub(crate) optimise: bool,
}

/// `--reuse-by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReuseMode {
    /// As clones, where the file system has them, else as copies
    #[default]
    Reflink,
    /// As the same files: who writes to one of them in that store changes it here too
    Hardlink,
    /// As copies
    Copy,
}

impl From<ReuseMode> for ReuseBy {
    fn from(way: ReuseMode) -> ReuseBy {
        match way {
            ReuseMode::Reflink => ReuseBy::Reflink,
            ReuseMode::Hardlink => ReuseBy::HardLink,
            ReuseMode::Copy => ReuseBy::Copy,
        }
    }
}
