//! The manual page of `floe nix-copy-closure`.

use crate::page::{Example, NIX_CONF, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-nix-copy-closure",
    description: &[
        "Copies closures to or from another machine with Nix over SSH, with the options of \
             nix-copy-closure. As with that command, the paths need no signatures, so the other \
             side must trust the user.",
    ],
    examples: &[Example::new(
        "Copy the result of a build to another machine",
        "floe nix-copy-closure --to root@HOST ./result",
    )],
    files: &[STORE, NIX_CONF],
    see_also: &["floe-copy(1)", "nix-copy-closure(1)", "ssh(1)"],
}];
