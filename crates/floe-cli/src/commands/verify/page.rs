//! The manual page of `floe verify`.

use crate::page::{Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-verify",
    description: &[
        "Hashes the contents of the paths of a store and compares them with the database, and \
             compares the database with the disk. Without --repair it changes nothing. With \
             --repair it fetches damaged and missing paths again.",
    ],
    examples: &[
        Example::new(
            "Check all paths of a store",
            "floe verify --root ~/nix-root",
        ),
        Example::new(
            "Fetch damaged paths again",
            "floe verify --root ~/nix-root --repair --from https://cache.nixos.org",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS],
    see_also: &["floe-install(1)", "nix-store(1)"],
}];
