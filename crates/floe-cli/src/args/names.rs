//! The name sources of a command.

use std::path::PathBuf;

use clap::{Args, ValueHint};

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
    /// Look names up in this file first, which floe lock made
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE", conflicts_with = "no_names")]
    pub(crate) lock: Option<PathBuf>,
    /// Use only the names of the file of --lock [default: floe.lock]
    #[arg(long, conflicts_with_all = ["names", "no_names"])]
    pub(crate) locked: bool,
}

impl NameArgs {
    /// Returns the description of the lock file as a name source, if there is one.
    pub(crate) fn lock_source(&self) -> Option<String> {
        let default = self.locked.then(|| PathBuf::from("floe.lock"));
        let file = self.lock.clone().or(default)?;
        Some(format!("lock:{}", file.display()))
    }
}
