//! The manual page of `floe du`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-du",
    description: &[
        "Shows how large the closures of paths in a store or binary cache are, as NARs. Below \
             each path stand its references: how large their closures are, how large they are \
             themselves, and how much only this reference brings in, which is what the closure \
             loses without it.",
    ],
    examples: &[
        Example::new(
            "Show which references make a closure large",
            "floe du /nix/store/HASH-NAME",
        ),
        Example::new(
            "Show what each path of the closure brings in",
            "floe du --tree /nix/store/HASH-NAME",
        ),
        Example::new(
            "Show how large the closure of a path in a cache is",
            "floe du --from https://cache.nixos.org HASH",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-tree(1)", "floe-list(1)", "floe-info(1)"],
}];
