//! The options of nix-copy-closure.

use clap::Args;

use crate::args::{LocalStoreArgs, OptionArgs, OutputArgs};

/// Options of `floe nix-copy-closure`, which are those of Nix's command.
#[derive(Clone, Debug, Args)]
pub(crate) struct NixCopyClosureArgs {
    /// Copy from this machine to HOST, which is the default
    #[arg(long, conflicts_with = "from")]
    pub(crate) to: bool,
    /// Copy from HOST to this machine
    #[arg(long)]
    pub(crate) from: bool,
    /// Compress the connection
    #[arg(long)]
    pub(crate) gzip: bool,
    /// The same as --gzip, as in Nix
    #[arg(long)]
    pub(crate) bzip2: bool,
    /// The same as --gzip, as in Nix
    #[arg(long)]
    pub(crate) xz: bool,
    /// Let HOST first fetch missing paths from its substituters
    #[arg(short = 's', long)]
    pub(crate) use_substitutes: bool,
    /// Print the paths that would be copied
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Has no effect: floe shows progress on a terminal
    #[arg(long)]
    pub(crate) show_progress: bool,
    /// Copy also the valid outputs of the derivations in the closures
    #[arg(long)]
    pub(crate) include_outputs: bool,
    /// The other machine
    #[arg(value_name = "[USER@]HOST")]
    pub(crate) host: String,
    /// Store paths, or files and links that lead into the store
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
