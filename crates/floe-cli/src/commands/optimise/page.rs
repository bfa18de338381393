//! The manual page of `floe optimise`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-optimise",
    examples: &[Example::new(
        "Show how much space equal files would save",
        "floe optimise --dry-run --root ~/nix-root",
    )],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-gc(1)", "nix-store(1)"],
}];
