//! The manual page of `floe log`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-log",
    description: &[
        "Prints the logs of the builds that made paths, as nix log does: from the directory of \
             logs beside a store, or from a binary cache. Unlike Nix, floe asks only the store or \
             cache that is named. A log is not signed.",
    ],
    examples: &[
        Example::new("Print the log of a path", "floe log ./result"),
        Example::new(
            "Print the log of a path in a cache",
            "floe log --from https://cache.nixos.org HASH",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-push(1)", "floe-info(1)", "nix3-log(1)"],
}];
