//! The manual page of `floe info`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-info",
    description: &[
        "Prints the metadata of paths in a store or binary cache, in the form of narinfo \
             files, or as the lines and the JSON of nix path-info.",
    ],
    examples: &[
        Example::new(
            "Ask a cache for a path",
            "floe info --from https://cache.nixos.org HASH",
        ),
        Example::new(
            "Print the closure of a valid path as JSON",
            "floe info --recursive --json /nix/store/HASH-NAME",
        ),
        Example::new(
            "Print the sizes of a path and of its closure",
            "floe info -sSh /nix/store/HASH-hello-2.12.1",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-copy(1)", "floe-du(1)", "nix.conf(5)"],
}];
