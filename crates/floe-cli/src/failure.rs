//! From an error to its words on stderr and an exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use floe_engine::{Error, ErrorKind};

/// A command has done what it could, has said what failed, and ends with this code.
#[derive(Debug, thiserror::Error)]
#[error("failed with exit code {0}")]
pub(crate) struct Silent(pub(crate) u8);

/// Prints the error and its causes; the code to exit with.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(Silent(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    // A reader that has gone away, as `head` does, is no failure of ours.
    if let Some(error) = error.downcast_ref::<io::Error>()
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS;
    }
    // Nothing can be done about a closed stderr.
    let _: io::Result<()> = writeln!(io::stderr(), "floe: {error:#}");
    let kind = error.downcast_ref().map_or(ErrorKind::Failed, Error::kind);
    ExitCode::from(code(kind))
}

/// The exit code for several failures: that of the gravest cause.
pub(crate) fn gravest(failures: &[Error]) -> u8 {
    const GRAVEST_FIRST: [ErrorKind; 5] = [
        ErrorKind::Interrupted,
        ErrorKind::NoSpace,
        ErrorKind::Untrusted,
        ErrorKind::Network,
        ErrorKind::Usage,
    ];
    let has = |kind: &ErrorKind| failures.iter().any(|error| error.kind() == *kind);
    code(
        GRAVEST_FIRST
            .into_iter()
            .find(has)
            .unwrap_or(ErrorKind::Failed),
    )
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
