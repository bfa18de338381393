//! The arguments of `floe tree`.

use clap::Args;

use crate::args::{ClosureArgs, PathArgs};

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) closure: ClosureArgs,
}
