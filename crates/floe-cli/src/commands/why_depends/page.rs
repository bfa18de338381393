//! The manual page of `floe why-depends`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-why-depends",
    description: &[
        "Shows the shortest chain of references from one path of a store or binary cache to \
             another, with the lines of nix why-depends, or all references that lead there. The \
             exit code is 1 if the first path does not need the second one. With --precise it \
             reads the contents, and shows which file or symlink holds each reference, and at \
             which offset.",
    ],
    examples: &[
        Example::new(
            "Show why a path needs another one",
            "floe why-depends ./result /nix/store/HASH-NAME",
        ),
        Example::new(
            "Show which file holds each reference",
            "floe why-depends --precise ./result /nix/store/HASH-NAME",
        ),
        Example::new(
            "Show all references that lead there, in a cache",
            "floe why-depends --all --from https://cache.nixos.org HASH1 HASH2",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-tree(1)", "floe-roots(1)", "nix(1)"],
}];
