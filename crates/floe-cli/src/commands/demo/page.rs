//! The manual page of `floe demo`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-demo",
    examples: &[Example::new(
        "Show floe at work, without a network and without Nix",
        "floe demo",
    )
    .on_main_page()],
    files: &[],
    see_also: &["floe-install(1)", "floe-copy(1)"],
}];
