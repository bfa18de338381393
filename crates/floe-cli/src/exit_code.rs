//! The exit code of each kind of error, and its name in JSON: see docs/interface.md.

use floe_transfer::ErrorKind;

/// The exit codes and their meanings.
pub(crate) const EXIT_CODES: [(u8, &str); 7] = [
    (0, "success"),
    (1, "another failure"),
    (2, "the command line or the configuration is invalid"),
    (
        3,
        "untrusted or corrupt: a signature, hash, size or format; a problem that verify or \
         rebuild-db found",
    ),
    (
        4,
        "a cache or store cannot be read: the network or a server failed, or it is not there",
    ),
    (5, "no space left"),
    (130, "interrupted; floe serve and nix-serve end with 0"),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_documents_every_exit_code() {
        let reference = include_str!("../../../docs/interface.md").replace('`', "");
        for (code, meaning) in EXIT_CODES {
            assert!(
                reference.contains(&format!("| {code} | {meaning} |")),
                "{code}"
            );
        }
    }

    #[test]
    fn every_kind_of_error_has_a_listed_code() {
        use ErrorKind::{Failed, Interrupted, Network, NoSpace, Untrusted, Usage};
        for kind in [Failed, Usage, Untrusted, Network, NoSpace, Interrupted] {
            let (code, name) = code_and_name(kind);
            assert!(
                EXIT_CODES.iter().any(|(listed, _)| *listed == code),
                "{name}"
            );
        }
    }
}
