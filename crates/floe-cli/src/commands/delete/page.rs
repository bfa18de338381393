//! The manual page of `floe delete`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-delete",
    description: &[
        "Deletes the named paths, unless a root keeps them or another path refers to them. \
             floe roots --why tells what keeps a path.",
    ],
    examples: &[Example::new(
        "Delete a path and all of its closure that nothing else keeps",
        "floe delete --recursive --skip-alive /nix/store/HASH-hello-2.12.1",
    )],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-gc(1)", "floe-roots(1)", "nix-store(1)"],
}];
