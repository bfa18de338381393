//! The name sources of a command.

use clap::Args;

/// Where names of packages are looked up.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Names of packages")]
pub(crate) struct NameArgs {
    /// Look up the names of packages, which may stand in the place of paths, at these name sources
    /// in this order, separated by spaces [default: the setting names]
    #[arg(long, value_name = "SOURCE …")]
    pub(crate) names: Option<String>,
    /// Refuse names of packages
    #[arg(long, conflicts_with = "names")]
    pub(crate) no_names: bool,
    /// Accept a pin with a lower serial number than one that this machine has seen
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}
