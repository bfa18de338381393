//! The manual page of `floe tree`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-tree",
    description: &[
        "Shows the closures of paths in a store or binary cache as trees, with the lines of \
             nix-store --query --tree. [...] stands behind a path whose references are shown \
             above.",
    ],
    examples: &[
        Example::new(
            "Show the closure of a valid path",
            "floe tree /nix/store/HASH-NAME",
        ),
        Example::new(
            "Show the closure of a path in a cache",
            "floe tree --from https://cache.nixos.org HASH",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-du(1)", "floe-why-depends(1)", "nix-store(1)"],
}];
