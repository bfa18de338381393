//! What a command tells while it works.

use std::path::PathBuf;

use clap::Args;

/// Where a move is drawn.
#[derive(Debug, Default, Args)]
pub(crate) struct TraceArgs {
    /// Write a timeline of every path to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}
