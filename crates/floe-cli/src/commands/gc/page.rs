//! The manual page of `floe gc`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-gc",
    examples: &[
        Example::new(
            "Show what a collection would delete in a store of your own",
            "floe gc --dry-run --root ~/nix-root",
        )
        .on_main_page(),
        Example::new(
            "Delete generations that were not in use for 30 days, then paths without a root",
            "floe gc --delete-older-than 30d",
        ),
        Example::new(
            "Delete paths until the disk has 50 GiB of free space",
            "floe gc --free 50G",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &[
        "floe-delete(1)",
        "floe-roots(1)",
        "floe-optimise(1)",
        "nix-store(1)",
    ],
}];
