//! The manual page of `floe roots`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-roots",
    description: &[
        "A GC root is a link or a process that keeps a path with its closure from being \
             deleted. The command lists all roots and what each keeps. With --why it prints the \
             references from each root to a path.",
    ],
    examples: &[Example::new(
        "Show what keeps a path from the garbage collector",
        "floe roots --why /nix/store/HASH-NAME",
    )],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-list(1)", "floe-gc(1)"],
}];
