//! The arguments of `floe log`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::QueryArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct LogCommandArgs {
    /// Paths, or the derivations that made them
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    #[arg(required = true)]
    pub(crate) paths: Vec<String>,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}
