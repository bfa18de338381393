//! How much a command prints on stderr, and in which colors.

use clap::{ArgAction, Args};

use crate::display::{ColorChoice, Verbosity};

#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print only warnings and errors
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Print a line for each path; given twice, also for each query and transfer
    #[arg(long, short, action = ArgAction::Count)]
    verbose: u8,
    /// Use colors on stderr [default: auto]
    #[arg(long, value_name = "WHEN")]
    color: Option<ColorChoice>,
}

impl OutputArgs {
    /// Returns these arguments, completed by those before the command.
    pub(crate) fn or(self, before: OutputArgs) -> OutputArgs {
        let is_set = self.quiet || self.verbose > 0;
        let (quiet, verbose) = match is_set {
            true => (self.quiet, self.verbose),
            false => (before.quiet, before.verbose),
        };
        OutputArgs {
            quiet,
            verbose,
            color: self.color.or(before.color),
        }
    }

    pub(crate) fn verbosity(self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Paths,
            (false, _) => Verbosity::Requests,
        }
    }

    pub(crate) fn color(self) -> ColorChoice {
        self.color.unwrap_or(ColorChoice::Auto)
    }
}
