//! The manual page of `floe optimise`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-optimise",
    description: &[
        "Replaces equal files of a store by hard links to one file in .links, as nix-store \
             --optimise does. The contents of all paths stay as they are.",
    ],
    examples: &[Example::new(
        "Show how much space equal files would save",
        "floe optimise --dry-run --root ~/nix-root",
    )],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-gc(1)", "nix-store(1)"],
}];
