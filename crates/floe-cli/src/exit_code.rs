//! The exit code of each kind of error, and its name in JSON: see docs/interface.md.

use floe_transfer::ErrorKind;

/// Returns the exit code of a kind of error, and its name in JSON.
pub(crate) fn code_and_name(kind: ErrorKind) -> (u8, &'static str) {
    match kind {
        ErrorKind::Failed => (1, "failed"),
        ErrorKind::Usage => (2, "usage"),
        ErrorKind::Untrusted => (3, "untrusted"),
        ErrorKind::Network => (4, "network"),
        ErrorKind::NoSpace => (5, "noSpace"),
        ErrorKind::Interrupted => (130, "interrupted"),
    }
}
