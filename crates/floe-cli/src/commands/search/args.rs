//! The arguments of `floe search`.

use clap::Args;

use crate::args::{LogArgs, NameArgs, OptionArgs, OutputArgs};

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Find the packages with all these words in their names, in any case
    #[arg(value_name = "WORD", required_unless_present = "check_sources")]
    pub(crate) words: Vec<String>,
    /// Ask each name source for the package hello, or for WORD, and print whether it replies as its
    /// kind does
    #[arg(long)]
    pub(crate) check_sources: bool,
    /// Fetch lists again instead of using those of the last hour
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Print one JSON object, with the paths of all packages
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
