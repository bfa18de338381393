//! The arguments of `floe cat`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::QueryArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Files in paths
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH/FILE")]
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}
