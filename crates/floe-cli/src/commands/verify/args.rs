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
    /// Check this store or binary cache: a directory, local?root=DIR, auto, one behind a daemon,
    /// such as ssh-ng://HOST, or the URL of a cache
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
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Check also the closures of the paths
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Do not read the contents: check only what is registered, and with --sigs-needed the
    /// signatures
    #[arg(long, conflicts_with = "repair")]
    pub(crate) no_contents: bool,
    /// Check also that this many trusted keys have signed each path that is not content-addressed
    #[arg(long, short = 'n', value_name = "N", value_parser = parse_count)]
    #[arg(conflicts_with = "no_check_sigs")]
    pub(crate) sigs_needed: Option<NonZeroUsize>,
    /// Do not check signatures, as without --sigs-needed
    #[arg(long, conflicts_with = "sigs_needed")]
    pub(crate) no_trust: bool,
    /// Check all paths, as without any path
    #[arg(long, conflicts_with_all = ["stdin", "paths", "recursive"])]
    pub(crate) all: bool,
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

impl VerifyArgs {
    /// Whether the arguments mean all paths. An empty stdin means none.
    pub(crate) fn names_no_path(&self) -> bool {
        self.paths.is_empty() && !self.stdin
    }

    /// Whether the arguments ask for what a daemon does to its store.
    pub(crate) fn is_of_whole_store(&self) -> bool {
        self.names_no_path() && !self.no_contents && self.sigs_needed.is_none()
    }
}
