//! The manual page of `floe lock`.

use crate::page::{Example, NAMES, NETRC, NIX_CONF, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-lock",
    description: &[
        "Looks names of packages up, queries the caches for the NAR hashes of their paths, and \
             prints both as a lock file. With --locked, other commands use only these paths, and \
             only with these NAR hashes.",
    ],
    examples: &[Example::new(
        "Lock two names",
        "floe lock jq ripgrep > floe.lock",
    )],
    files: &[NIX_CONF, NETRC, NAMES],
    see_also: &["floe-install(1)", "floe-run(1)"],
}];
