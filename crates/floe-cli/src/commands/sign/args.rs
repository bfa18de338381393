//! The arguments of `floe sign`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::args::{LogArgs, OptionArgs, OutputArgs, PathArgs};

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Sign with the secret key in this file; may be repeated
    #[arg(value_hint = ValueHint::FilePath, long, short, required = true, value_name = "FILE")]
    pub(crate) key_file: Vec<PathBuf>,
    /// Sign also the closures of the paths
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// The binary cache or the store that has the paths
    #[arg(value_name = "CACHE|STORE")]
    pub(crate) store: String,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
