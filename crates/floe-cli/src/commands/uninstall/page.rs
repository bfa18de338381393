//! The manual page of `floe uninstall`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-uninstall",
    description: &[
        "Removes links, or entries of profiles, so that a later floe gc frees what only they \
             kept. It deletes no path itself, and prints what a collection would free.",
    ],
    examples: &[Example::new(
        "Remove the link or the profile that keeps a program",
        "floe uninstall --root ~/nix-root hello",
    )],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-list(1)", "floe-gc(1)"],
}];
