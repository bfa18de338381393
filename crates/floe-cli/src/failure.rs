//! From an error to its words on stderr and an exit code.

use std::process::ExitCode;

use floe_engine::{Error, ErrorKind};
use floe_server::ServeError;
use floe_server::address::AddressError;
use floe_store::StoreError;

use crate::progress::say;

/// A command has done what it could, has said what failed, and ends with this code.
#[derive(Debug, thiserror::Error)]
#[error("failed with exit code {0}")]
pub(crate) struct Silent(pub(crate) u8);

/// The command line makes no sense, in these words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

impl From<AddressError> for Usage {
    fn from(error: AddressError) -> Usage {
        Usage(error.0)
    }
}

/// Prints the error and its causes; the code to exit with.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(Silent(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    // The errors of floe's libraries say their causes themselves.
    let is_whole = error.is::<Error>()
        || error.is::<StoreError>()
        || error.is::<ServeError>()
        || error.is::<Usage>();
    match is_whole {
        true => say(format_args!("floe: {error}")),
        false => say(format_args!("floe: {error:#}")),
    }
    let kind = match error.downcast_ref::<Error>() {
        Some(error) => error.kind(),
        None if error.is::<Usage>() => ErrorKind::Usage,
        None if matches!(error.downcast_ref(), Some(ServeError::Config(_))) => ErrorKind::Usage,
        None => ErrorKind::Failed,
    };
    ExitCode::from(code(kind))
}

/// The exit code for several failures: that of the gravest cause.
pub(crate) fn gravest(failures: &[Error]) -> u8 {
    code(ErrorKind::gravest(failures))
}

/// The exit codes of docs/interface.md.
fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Failed => 1,
        ErrorKind::Usage => 2,
        ErrorKind::Untrusted => 3,
        ErrorKind::Network => 4,
        ErrorKind::NoSpace => 5,
        ErrorKind::Interrupted => 130,
    }
}
