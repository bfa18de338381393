//! The arguments of `floe restore`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::args::{LogArgs, OutputArgs};

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The new file or directory, which must not exist
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) place: PathBuf,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
