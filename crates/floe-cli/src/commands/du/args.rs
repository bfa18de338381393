//! The arguments of `floe du`.

use clap::Args;

use crate::args::{ClosureArgs, PathArgs};

#[derive(Debug, Args)]
pub(crate) struct DuArgs {
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) closure: ClosureArgs,
}
