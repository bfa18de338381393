//! The manual page of `floe add`.

use crate::page::{AWS, Example, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-add",
    description: &[
        "Adds files and directories to a store or binary cache, and prints their store paths, as \
             nix store add does. The paths follow from names and contents, so they need no \
             signature. With --mode flat or --mode text, only the bytes of a file count.",
        "If a file changes while it is added, its path is not added. Nothing protects the paths in \
             a local store from garbage collection unless --out-link does.",
    ],
    examples: &[
        Example::new(
            "Add a directory to the store, and keep it",
            "floe add ./source --out-link source-path",
        ),
        Example::new(
            "Add the file that a fixed-output derivation fetches to a cache",
            "floe add --mode flat --to file:///srv/cache source.tar.gz",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, AWS],
    see_also: &["floe-hash(1)", "floe-copy(1)", "floe-push(1)", "nix(1)"],
}];
