//! The manual page of `floe rebuild-db`.

use crate::page::{Example, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-rebuild-db",
    description: &[
        "Makes the database of a store new from the paths on disk, for a store whose database is \
             lost or damaged, or for a bare copy of /nix/store. It hashes all paths, keeps the \
             rows of the old database that are right, and registers what a cache has signed and \
             what has a content address. Roots and profiles stay.",
        "No other program may have the store open for changes. The files of the store keep their \
             contents; new paths get the modes and times of store paths.",
    ],
    examples: &[
        Example::new(
            "Register the paths of a copy of /nix/store in ~/nix-root/nix/store",
            "floe rebuild-db --root ~/nix-root",
        ),
        Example::new(
            "Show first what would be registered",
            "floe rebuild-db --root ~/nix-root --dry-run",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC],
    see_also: &["floe-verify(1)", "floe-install(1)", "nix-store(1)"],
}];
