//! Reports errors on stderr, and chooses exit codes.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapError};
use floe_config::ConfigError;
use floe_daemon::HostError;
use floe_names::NameError;
use floe_server::ServeError;
use floe_server::address::AddressError;
use floe_store::StoreError;
use floe_transfer::{Error, ErrorKind, nearest_name};
use serde_json::{Value, json};

use crate::display::{self, Level, eprint_error};
use crate::exit_code::code_and_name;
use crate::nix_spellings::floe_spelling;

/// The failure of a command that has reported it already; its exit code.
#[derive(Debug, thiserror::Error)]
#[error("failed with exit code {0}")]
pub(crate) struct AlreadyReported(pub(crate) u8);

impl From<ErrorKind> for AlreadyReported {
    fn from(kind: ErrorKind) -> AlreadyReported {
        AlreadyReported(code_and_name(kind).0)
    }
}

/// A command line that cannot be used; the message says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl From<AddressError> for UsageError {
    fn from(error: AddressError) -> UsageError {
        UsageError(error.0)
    }
}

/// The exit codes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCodes {
    /// One for each kind of error.
    Floe,
    /// Those of Nix's programs: 1 after any error, except for those above 100.
    Nix,
}

impl ExitCodes {
    /// Returns those of a command line, whose first word is the name of the program. `nix-serve`
    /// is no program of Nix: its codes are those of `floe serve`.
    pub(crate) fn of_line(line: &[OsString]) -> ExitCodes {
        let program = line.first().and_then(|it| Path::new(it).file_name());
        let names = [program, line.get(1).map(|it| &**it)];
        let mut names = names.into_iter().flatten().map(|it| it.to_string_lossy());
        let is_of_nix = |name: &str| name == "nix" || name.starts_with("nix-");
        match names.find(|name| is_of_nix(name)) {
            Some(name) if name != "nix-serve" => ExitCodes::Nix,
            _ => ExitCodes::Floe,
        }
    }

    fn code(self, code: u8) -> u8 {
        match self {
            ExitCodes::Nix if code < NIX_CODE_MIN => 1,
            _ => code,
        }
    }
}

/// Nix's programs have no other codes than 1 and those from this one on.
const NIX_CODE_MIN: u8 = 100;

/// Prints an error with its causes, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error, codes: ExitCodes) -> ExitCode {
    if let Some(AlreadyReported(code)) = error.downcast_ref() {
        return ExitCode::from(codes.code(*code));
    }
    let (kind, message) = (kind(error), message(error));
    if display::is_json() {
        let error = match error.downcast_ref() {
            Some(ConfigError::StoreUri(error)) => Some(error),
            _ => error.downcast_ref(),
        };
        let fields = error.map_or_else(|| json!({ "message": message }), display::error_fields);
        write_error((kind, codes), fields);
    } else {
        eprint_error(message);
    }
    ExitCode::from(codes.code(code_and_name(kind).0))
}

/// Writes the JSON line of an error, with its kind and exit code added to the fields.
fn write_error((kind, codes): (ErrorKind, ExitCodes), mut fields: Value) {
    let (code, name) = code_and_name(kind);
    fields["kind"] = name.into();
    fields["exitCode"] = codes.code(code).into();
    display::write_event(Level::Error, "error", fields);
}

/// Gives the error of an interrupted command a message about what the command leaves.
pub(crate) fn explain_interrupt(error: anyhow::Error, message: &'static str) -> anyhow::Error {
    match error.downcast_ref() {
        Some(Error::Cancelled) => error.context(message),
        _ => error,
    }
}

/// Reports a command of which a part has failed, and returns its error.
pub(crate) fn failures(message: &str, failed: usize, kind: ErrorKind) -> anyhow::Error {
    if !display::is_json() {
        eprint_error(message);
    }
    reported_failures(message, failed, kind)
}

/// Returns the error of a command that has reported its failures already. With `--log-format json`,
/// writes the line that counts them.
pub(crate) fn reported_failures(message: &str, failed: usize, kind: ErrorKind) -> anyhow::Error {
    let reported = AlreadyReported::from(kind);
    if display::is_json() {
        let fields = json!({ "message": message, "failed": failed, "exitCode": reported.0 });
        display::write_event(Level::Error, "error", fields);
    }
    reported.into()
}

/// Returns an error with its causes in one line.
pub(crate) fn message(error: &anyhow::Error) -> String {
    // The errors of floe's libraries contain their causes.
    let is_whole = error.is::<Error>()
        || error.is::<StoreError>()
        || error.is::<ServeError>()
        || error.is::<ConfigError>()
        || error.is::<NameError>()
        || error.is::<HostError>()
        || error.is::<UsageError>();
    if is_whole {
        error.to_string()
    } else {
        format!("{error:#}")
    }
}

/// Returns the kind of an error of any of floe's crates.
pub(crate) fn kind(error: &anyhow::Error) -> ErrorKind {
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.kind();
    }
    if let Some(error) = error.downcast_ref::<ConfigError>() {
        return error.kind();
    }
    if let Some(error) = error.downcast_ref::<NameError>() {
        return error.kind();
    }
    if let Some(error) = error.downcast_ref() {
        return ErrorKind::of_store(error);
    }
    match error.downcast_ref() {
        Some(ServeError::Config(_) | ServeError::LoginFile { .. }) => ErrorKind::Usage,
        Some(ServeError::Store(error)) => ErrorKind::of_store(error),
        _ if error.is::<UsageError>() => ErrorKind::Usage,
        _ => ErrorKind::Failed,
    }
}

/// Prints clap's message about a command line that it cannot parse, or help and version.
///
/// Parsing has failed, so `--log-format json` is looked for in the arguments themselves.
pub(crate) fn report_usage(
    mut error: clap::Error,
    arguments: Vec<OsString>,
    codes: ExitCodes,
) -> ExitCode {
    let command = arguments.get(1).and_then(|it| it.to_str());
    let is_spelling = match error.kind() {
        ClapError::InvalidSubcommand => true,
        // floe has this command of Nix.
        ClapError::UnknownArgument => command != Some("nix"),
        // An option of Nix may have another meaning in floe, such as -q.
        ClapError::MissingRequiredArgument => {
            command.is_some_and(|command| command.starts_with("nix-"))
        }
        _ => false,
    };
    if is_spelling && let Some(fix) = floe_spelling(&arguments) {
        let words: Vec<_> = arguments
            .iter()
            .skip(1)
            .map(|it| it.to_string_lossy())
            .collect();
        let reason = match error.kind() {
            ClapError::InvalidSubcommand => "floe has no such command",
            _ => "that is a spelling of Nix",
        };
        let program = if command == Some("nix") { "" } else { "floe " };
        let error = UsageError(format!(
            "cannot run {program}{}: {reason}; try {fix}",
            words.join(" ")
        ));
        return report(&error.into(), codes);
    }
    if error.kind() == ClapError::UnknownArgument
        && let Some(name @ ("run" | "shell")) = arguments.get(1).and_then(|it| it.to_str())
        && !arguments.contains(&"--".into())
    {
        let argument = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(argument)) => argument.clone(),
            _ => "the argument".into(),
        };
        let reason = if argument.starts_with('-') {
            format!("cannot use {argument}: floe {name} has no such option")
        } else {
            format!("cannot pass {argument} to the program: it may be an argument of floe {name}")
        };
        let error = UsageError(format!(
            "{reason}; write -- before the arguments of the program"
        ));
        return report(&error.into(), codes);
    }
    // For an unknown option, clap suggests to pass it as a path, which is never meant.
    error.remove(ContextKind::Suggested);
    keep_nearest_suggestion(&mut error);
    if error.use_stderr() && requests_json(&arguments) {
        let message = error.render().to_string();
        write_error(
            (ErrorKind::Usage, codes),
            json!({ "message": message.trim_end() }),
        );
    } else if error.use_stderr() && display::is_journal() {
        display::write_lines(
            Level::Error,
            error.render().to_string().trim_end().to_owned(),
        );
    } else {
        // A closed stdout or stderr is ignored.
        let _: std::io::Result<()> = error.print();
    }
    if error.use_stderr() {
        ExitCode::from(codes.code(code_and_name(ErrorKind::Usage).0))
    } else {
        ExitCode::SUCCESS
    }
}

/// Keeps only the similar name that is the nearest, and none that is too far to be meant.
fn keep_nearest_suggestion(error: &mut clap::Error) {
    for (typed, suggested) in [
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    ] {
        let texts = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => Vec::new(),
        };
        let (typed, names) = (texts(typed), texts(suggested));
        let Some(typed) = typed.first().filter(|_| !names.is_empty()) else {
            continue;
        };
        let bare_names = names.iter().map(|name| name.trim_start_matches('-'));
        let nearest = nearest_name(typed.trim_start_matches('-'), bare_names);
        let is_nearest = |name: &&String| Some(name.trim_start_matches('-')) == nearest;
        match names.iter().find(is_nearest).cloned() {
            None => error.remove(suggested),
            Some(name) => error.insert(suggested, ContextValue::String(name)),
        };
    }
}

fn requests_json(arguments: &[OsString]) -> bool {
    let pair = ["--log-format", "json"];
    arguments.contains(&"--log-format=json".into()) || arguments.windows(2).any(|two| two == pair)
}
