//! The manual page of `floe dump`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-dump",
    description: &[
        "Writes the NAR of a path in a store or binary cache to stdout, decompressed, as nix \
             store dump-path does. At its end floe compares the size and the hash with those that \
             the store or cache declares; if they differ, the exit code is 3, and the output must \
             not be used.",
    ],
    examples: &[
        Example::new("Write the NAR of a path", "floe dump ./result > result.nar"),
        Example::new(
            "Unpack a path of a cache into a directory outside of a store",
            "floe dump --from https://cache.nixos.org HASH | floe restore ./from-cache",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-restore(1)", "floe-cat(1)", "floe-copy(1)"],
}];
