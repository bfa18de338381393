//! The arguments of `floe diff`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::ClosureArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The path with the earlier closure, such as the link of a profile's generation
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "BEFORE")]
    pub(crate) before: String,
    /// The path with the later closure
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "AFTER")]
    pub(crate) after: String,
    #[command(flatten)]
    pub(crate) closure: ClosureArgs,
}
