//! The rule that shipped code starts threads with `thread::Builder`.

use super::code::Pattern::{self, MethodOf, Path};

/// The ways to start a thread that panic if the system refuses it.
pub(super) const PATTERNS: &[Pattern] = &[Path("thread", "spawn"), MethodOf("scope", "spawn")];

pub(super) const WHY: &str = "the system may refuse a thread, and then this call panics; use \
                              thread::Builder, and do the work with fewer threads";

/// Whether the rule applies to shipped code of a package: the developer tools may panic.
pub(super) fn applies(package: &str) -> bool {
    !matches!(package, "floe-testkit" | "xtask")
}

#[cfg(test)]
mod tests {
    use super::super::code::{lines_with, tokens};
    use super::*;

    fn count(code: &str) -> usize {
        let tokens = tokens(code);
        let found = PATTERNS.iter().map(|it| lines_with(&tokens, *it).len());
        found.sum()
    }

    #[test]
    fn only_calls_that_panic_are_found() {
        for code in ["std::thread::spawn(f);", "use std::thread::{self, spawn};"] {
            assert_eq!(count(code), 1, "{code}");
        }
        assert_eq!(count("scope.spawn(|| work());"), 1);
        for code in ["Builder::new().spawn_scoped(scope, f)", "command.spawn()?"] {
            assert_eq!(count(code), 0, "{code}");
        }
    }
}
