//! The arguments of `floe dump`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::QueryArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// The path
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}
