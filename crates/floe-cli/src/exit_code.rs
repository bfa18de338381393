//! The exit code of each kind of error, and its name in JSON: see docs/interface.md.

use floe_transfer::ErrorKind;

/// Returns the exit code.
pub(crate) fn code(kind: ErrorKind) -> u8 {
    row(kind).1
}

/// Returns the name in JSON.
pub(crate) fn name(kind: ErrorKind) -> &'static str {
    row(kind).2
}

fn row(kind: ErrorKind) -> (ErrorKind, u8, &'static str) {
    let found = KINDS.into_iter().find(|row| row.0 == kind);
    found.unwrap_or(KINDS[0])
}

const KINDS: [(ErrorKind, u8, &str); 6] = [
    (ErrorKind::Failed, 1, "failed"),
    (ErrorKind::Usage, 2, "usage"),
    (ErrorKind::Untrusted, 3, "untrusted"),
    (ErrorKind::Network, 4, "network"),
    (ErrorKind::NoSpace, 5, "noSpace"),
    (ErrorKind::Interrupted, 130, "interrupted"),
];
