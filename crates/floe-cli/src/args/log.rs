//! What a command tells while it works.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How a command's words on stderr look.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct LogArgs {
    /// What stderr holds [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Bars on a terminal, lines elsewhere
    Text,
    /// One JSON object a line
    Json,
}

/// Where a move is drawn.
#[derive(Debug, Default, Args)]
pub(crate) struct TraceArgs {
    /// Write a timeline of every path to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}
