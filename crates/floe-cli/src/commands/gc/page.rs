//! The manual page of `floe gc`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-gc",
    description: &[
        "Deletes the valid paths that no GC root needs, and the files of the store directory \
             that are not valid. Roots are the links of floe install --out-link and --profile, \
             those of Nix, and the paths that running processes use: floe roots lists them.",
        "A collection may run beside any number of other programs of Nix and floe.",
    ],
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
