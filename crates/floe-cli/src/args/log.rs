//! The arguments for the output of a command at work.

use std::path::PathBuf;

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

/// The trace of a copy.
#[derive(Debug, Default, Args)]
pub(crate) struct TraceArgs {
    /// Write a timeline of every path to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}
