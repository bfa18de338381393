//! The manual page of `floe ls`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-ls",
    description: &[
        "Lists the files in a path of a store or binary cache, with the lines of nix store ls. \
             Where a cache has a listing of the path, floe fetches only the listing; otherwise it \
             reads the NAR, and shows what is there without verifying it. Symlinks on the way to \
             the file are followed, also into other paths.",
    ],
    examples: &[
        Example::new("List the programs of a path", "floe ls ./result/bin"),
        Example::new(
            "List all files of a path in a cache, with their sizes",
            "floe ls -lR --from https://cache.nixos.org HASH",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-cat(1)", "floe-dump(1)", "floe-du(1)"],
}];
