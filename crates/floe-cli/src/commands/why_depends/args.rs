//! The arguments of `floe why-depends`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::ClosureArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct WhyDependsArgs {
    /// The path that needs the other one
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    pub(crate) package: String,
    /// The path that it needs
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "DEPENDENCY")]
    pub(crate) dependency: String,
    /// Show all references that lead to the other path, not only the shortest chain
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Read the contents, and show which file or symlink holds each reference, and where
    #[arg(long)]
    pub(crate) precise: bool,
    #[command(flatten)]
    pub(crate) closure: ClosureArgs,
}
