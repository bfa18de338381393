//! The arguments of `floe config`.

use clap::Args;

use crate::args::OptionArgs;

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only these settings
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
}
