//! The arguments of `floe du`.

use clap::Args;

use crate::args::{ClosureArgs, PathArgs};

#[derive(Debug, Args)]
pub(crate) struct DuArgs {
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    /// Show the whole closure, each path below the one without which it would not be there
    #[arg(long)]
    pub(crate) tree: bool,
    #[command(flatten)]
    pub(crate) closure: ClosureArgs,
}
