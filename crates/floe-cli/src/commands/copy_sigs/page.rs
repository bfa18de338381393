//! The manual page of `floe copy-sigs`.

use crate::page::{AWS, Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-copy-sigs",
    description: &[
        "Adds the signatures that caches have of paths to the same paths of a store or of another \
             cache, without their contents. A path gets signatures only if its NAR hash, its size \
             and its references are those of the cache.",
        "Paths that were copied without signatures, or built here, can then be copied to stores \
             that trust the key of the cache.",
    ],
    examples: &[
        Example::new(
            "Add the signatures of a cache to all paths of the store",
            "floe copy-sigs --from https://cache.nixos.org --all",
        ),
        Example::new(
            "Add those of the closure of a link",
            "floe copy-sigs --from https://cache.nixos.org --recursive ./result",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, AWS],
    see_also: &["floe-sign(1)", "floe-info(1)", "floe-verify(1)", "nix(1)"],
}];
