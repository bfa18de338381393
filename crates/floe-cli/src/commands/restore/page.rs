//! The manual page of `floe restore`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-restore",
    description: &[
        "Reads a NAR from stdin, and unpacks it to a new place outside of a store, as nix-store \
             --restore does. If the NAR is damaged or incomplete, nothing stays. A NAR has no \
             signature: unpack only what you trust, or what floe dump has written without an \
             error.",
    ],
    examples: &[Example::new(
        "Unpack a NAR",
        "floe restore ./unpacked < result.nar",
    )],
    files: &[],
    see_also: &["floe-dump(1)", "floe-install(1)"],
}];
