//! The arguments of `floe install`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::{NameArgs, parse_time_span, read_paths};
use crate::completions;
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
    /// Make the path of this pin, in a cache of --from, the newest generation of --profile
    #[arg(long, value_name = "NAME", requires_all = ["from", "profile"])]
    #[arg(conflicts_with_all = ["all", "stdin", "paths", "dry_run", "json", "out_link"])]
    #[arg(conflicts_with_all = ["names", "no_names", "lock", "locked"])]
    pub(crate) follow: Option<String>,
    /// With --follow: ask for the pin again after each time span, such as 60s or 5m, until SIGINT
    /// or SIGTERM; otherwise ask once
    #[arg(long, value_name = "TIME", requires = "follow", value_parser = parse_time_span)]
    pub(crate) every: Option<Duration>,
    /// With --follow: run this line in a shell after the profile has changed. If it fails, switch
    /// back, and run it again
    #[arg(long, value_name = "COMMAND", requires = "follow")]
    pub(crate) run: Option<String>,
    /// All paths of the source, which must be able to list them
    #[arg(long, conflicts_with_all = ["stdin", "paths"])]
    pub(crate) all: bool,
    /// Read paths from stdin too, one in each line, as - among the paths does
    #[arg(long)]
    stdin: bool,
    /// Store paths, base names, hash parts, files in store paths, links such as ./result, or names
    /// of paths in a local store
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    #[arg(required_unless_present_any = ["all", "stdin", "follow"])]
    paths: Vec<String>,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

impl InstallArgs {
    /// Returns the paths of the command line and those of stdin.
    ///
    /// Errors: stdin cannot be read.
    pub(super) fn read_paths(&self) -> anyhow::Result<Vec<String>> {
        read_paths(&self.paths, self.stdin)
    }
}
