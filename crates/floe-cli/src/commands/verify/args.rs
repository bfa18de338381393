//! The arguments of `floe verify`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::args::{LogArgs, OptionArgs, OutputArgs, TrustArgs, parse_count};

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Check the store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// Check this store: a directory, local?root=DIR, auto, or one behind a daemon, such as
    /// ssh-ng://HOST
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Hash at most this many paths at once [default: chosen for the processor]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Fetch damaged and missing valid paths again and replace them
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair: fetch from this binary cache or store; may be repeated, and is tried in this
    /// order [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL", requires = "repair")]
    pub(crate) from: Vec<String>,
    /// With --repair: query caches again instead of using their remembered replies
    #[arg(long, requires = "repair")]
    pub(crate) refresh: bool,
    /// Check the paths on stdin, one in each line, as - among the paths does
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Check only these paths, which may be links or names of paths
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
