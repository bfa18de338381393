//! The format of stderr.

use clap::{Args, ValueEnum};

/// The format of stderr.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct LogArgs {
    /// The format of stderr [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Bars on a terminal, else lines
    Text,
    /// One JSON object per line
    Json,
}
