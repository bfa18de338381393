//! The arguments of `floe copy`.

use clap::{ArgGroup, Args};

use crate::args::{LocalStoreArgs, NameArgs, PathArgs};
use crate::copying::TransferArgs;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("ends").args(["from", "to"]).required(true).multiple(true))]
pub(crate) struct CopyArgs {
    /// Copy from this store or binary cache [default: the store of --root or --store]
    #[arg(long, value_name = "STORE|URL")]
    pub(crate) from: Option<String>,
    /// Copy to this store or cache, such as file:///srv/cache?compression=zstd&secret-key=FILE
    /// [default: the store of --root or --store]
    #[arg(long, value_name = "STORE|URL")]
    pub(crate) to: Option<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// With paths from stdin: copy each as its line arrives, until stdin ends
    #[arg(long, conflicts_with_all = ["out_link", "profile", "dry_run"])]
    pub(crate) follow: bool,
    /// Let the target, a store behind a Nix daemon, first fetch missing paths from its substituters
    #[arg(short, long)]
    pub(crate) substitute_on_destination: bool,
    /// Read the narinfo of each path that the target, a cache, has, compare its NAR by size, and
    /// copy damaged paths again; otherwise a list of the cache must look damaged for that
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
}
