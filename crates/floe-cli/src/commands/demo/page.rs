//! The manual page of `floe demo`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-demo",
    description: &[
        "Makes a store from the files of floe itself, pushes it into a binary cache, installs \
             it from there, verifies it and runs it. It needs no network and leaves nothing \
             behind, except with --keep.",
    ],
    examples: &[Example::new(
        "Show floe at work, without a network and without Nix",
        "floe demo",
    )
    .on_main_page()],
    files: &[],
    see_also: &["floe-install(1)", "floe-copy(1)"],
}];
