//! Reports errors on stderr, and chooses exit codes.

use std::ffi::OsString;
use std::process::ExitCode;

use floe_config::ConfigError;
use floe_server::ServeError;
use floe_server::address::AddressError;
use floe_store::StoreError;
use floe_transfer::{Error, ErrorKind};
use serde_json::json;

use crate::display::{self, Level, eprint_line};
use crate::exit_code;

/// The failure of a command that has reported it already; its exit code.
#[derive(Debug, thiserror::Error)]
#[error("failed with exit code {0}")]
pub(crate) struct AlreadyReported(pub(crate) u8);

/// A command line that cannot be used; the message says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl From<AddressError> for UsageError {
    fn from(error: AddressError) -> UsageError {
        UsageError(error.0)
    }
}

/// Prints an error with its causes, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(AlreadyReported(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    let (kind, message) = (kind(error), message(error));
    match display::is_json() {
        true => {
            let mut fields = match error.downcast_ref::<Error>() {
                Some(error) => display::error_fields(error),
                None => json!({ "message": message, "kind": exit_code::name(kind) }),
            };
            fields["exitCode"] = exit_code::code(kind).into();
            display::write_event(Level::Error, "error", fields);
        }
        false => eprint_line(format_args!("floe: {message}")),
    }
    ExitCode::from(exit_code::code(kind))
}

/// Returns an error with its causes in one line.
pub(crate) fn message(error: &anyhow::Error) -> String {
    // The errors of floe's libraries contain their causes.
    let is_whole = error.is::<Error>()
        || error.is::<StoreError>()
        || error.is::<ServeError>()
        || error.is::<ConfigError>()
        || error.is::<UsageError>();
    match is_whole {
        true => error.to_string(),
        false => format!("{error:#}"),
    }
}

/// Returns the kind of an error of any of floe's crates.
fn kind(error: &anyhow::Error) -> ErrorKind {
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.kind();
    }
    if let Some(error) = error.downcast_ref::<ConfigError>() {
        return error.kind();
    }
    match error.downcast_ref() {
        _ if error.is::<UsageError>() => ErrorKind::Usage,
        Some(StoreError::Interrupted) => ErrorKind::Interrupted,
        _ if matches!(error.downcast_ref(), Some(ServeError::Config(_))) => ErrorKind::Usage,
        _ => ErrorKind::Failed,
    }
}

/// Prints clap's message about a command line that it cannot parse, or help and version.
///
/// Parsing has failed, so `--log-format json` is looked for in the arguments themselves.
pub(crate) fn report_usage(
    error: &clap::Error,
    arguments: impl Iterator<Item = OsString>,
) -> ExitCode {
    if error.use_stderr() && requests_json(arguments) {
        let (kind, message) = (ErrorKind::Usage, error.render().to_string());
        let fields = json!({
            "message": message.trim_end(),
            "kind": exit_code::name(kind),
            "exitCode": exit_code::code(kind),
        });
        display::write_event(Level::Error, "error", fields);
    } else {
        // A closed stdout or stderr is ignored.
        let _: std::io::Result<()> = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit_code::code(ErrorKind::Usage)))
}

fn requests_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let arguments: Vec<OsString> = arguments.collect();
    let pair = [OsString::from("--log-format"), OsString::from("json")];
    arguments.contains(&OsString::from("--log-format=json"))
        || arguments.windows(2).any(|two| two == pair)
}

/// Returns the exit code of the most severe of several failures.
pub(crate) fn most_severe_code(failures: &[Error]) -> u8 {
    exit_code::code(ErrorKind::most_severe(failures))
}
