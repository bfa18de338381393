//! How much a command prints on stderr, in which format and colors.

use clap::{ArgAction, ArgMatches, Args, FromArgMatches as _, ValueEnum};

use crate::display::{ColorChoice, StderrLines, Verbosity};

/// The format of stderr.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LogArgs {
    /// The format of stderr [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text; on a terminal with progress that changes in place
    Text,
    /// One JSON object per line
    Json,
    /// Lines of text, also on a terminal
    #[value(alias = "raw-with-logs")]
    Raw,
    /// The same as text
    #[value(aliases = ["bar-with-logs", "multiline", "multiline-with-logs"])]
    Bar,
    /// The lines of Nix, for programs such as nix-output-monitor
    InternalJson,
}

impl LogFormat {
    pub(crate) fn lines(self) -> StderrLines {
        match self {
            LogFormat::Text | LogFormat::Bar => StderrLines::Text,
            LogFormat::Raw => StderrLines::PlainText,
            LogFormat::Json => StderrLines::Json,
            LogFormat::InternalJson => StderrLines::NixJson,
        }
    }
}

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
    /// Returns the arguments of the innermost command, completed by those before it.
    pub(crate) fn of_line(line: &ArgMatches) -> OutputArgs {
        levels(line).fold(OutputArgs::default(), |before, level| {
            // Not every command has them.
            let has_arguments = level.try_contains_id("quiet").is_ok();
            let own = has_arguments.then(|| OutputArgs::from_arg_matches(level).ok());
            own.flatten().unwrap_or_default().or(before)
        })
    }

    /// Returns these arguments, completed by those before the command.
    fn or(self, before: OutputArgs) -> OutputArgs {
        let is_set = self.quiet || self.verbose > 0;
        let (quiet, verbose) = if is_set {
            (self.quiet, self.verbose)
        } else {
            (before.quiet, before.verbose)
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

/// Returns the format of stderr that the innermost command has, or one before it.
///
/// `nix-serve` has an option of the same name for its access log. There, this option must stand
/// before the command.
pub(crate) fn log_format(line: &ArgMatches) -> LogFormat {
    let chosen = levels(line).filter_map(|level| {
        let format = level.try_get_one::<LogFormat>("log_format");
        format.ok().flatten().copied()
    });
    chosen.last().unwrap_or(LogFormat::Text)
}

/// Returns the arguments of floe, those of its command, and so on.
fn levels(line: &ArgMatches) -> impl Iterator<Item = &ArgMatches> {
    std::iter::successors(Some(line), |level| {
        level.subcommand().map(|(_, below)| below)
    })
}
