//! The manual page of `floe uninstall`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-uninstall",
    examples: &[Example::new(
        "Remove the link or the profile that keeps a program",
        "floe uninstall --root ~/nix-root hello",
    )],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-list(1)", "floe-gc(1)"],
}];
