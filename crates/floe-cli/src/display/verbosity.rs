//! How much a command prints on stderr, and in which colors.

use clap::ValueEnum;

/// `--color`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How much a command prints on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Warnings and errors.
    Quiet,
    /// Also progress and the outcome.
    Normal,
    /// Also a line for each path.
    Paths,
    /// Also a line for each query and each transfer.
    Requests,
}
