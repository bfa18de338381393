//! The columns behind a path.

use clap::Args;

/// The options of `nix path-info` that add columns. `-h` is one of them, so a command with these
/// options declares `--help` itself.
#[derive(Debug, Args)]
pub(crate) struct ColumnArgs {
    /// Print the size of each NAR
    #[arg(long, short)]
    pub(crate) size: bool,
    /// Print the size of each closure
    #[arg(long, short = 'S')]
    pub(crate) closure_size: bool,
    /// Print sizes such as 5.7 GiB
    #[arg(long, short)]
    pub(crate) human_readable: bool,
    /// Print content addresses and signatures
    #[arg(long)]
    pub(crate) sigs: bool,
}

impl ColumnArgs {
    /// Returns whether there are no columns.
    pub(crate) fn is_empty(&self) -> bool {
        !(self.size || self.closure_size || self.sigs)
    }
}
