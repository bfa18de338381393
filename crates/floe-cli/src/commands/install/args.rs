//! The arguments of `floe install`.

use std::path::PathBuf;

use clap::Args;

use crate::args::{NameArgs, PathArgs};
use crate::copying::TransferArgs;

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Fetch from this binary cache or store; may be repeated, and is tried in this order
    /// [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Install into the store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Install into this store: a directory, local?root=DIR, or auto
    #[arg(
        long,
        visible_alias = "to",
        value_name = "STORE",
        conflicts_with = "root"
    )]
    pub(crate) store: Option<String>,
    /// The store directory in the paths, for caches of another prefix than /nix/store
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Hash the valid paths of the closures, and replace those that are damaged
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}
