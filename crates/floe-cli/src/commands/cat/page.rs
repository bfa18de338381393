//! The manual page of `floe cat`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-cat",
    description: &[
        "Prints files in paths of a store or binary cache. Where a cache has a listing of the \
             path and an uncompressed NAR, floe fetches only the listing and the file; otherwise \
             it reads the NAR up to the end of the file. Symlinks are followed, also into other \
             paths. Nothing is verified: to get verified files, install the path.",
    ],
    examples: &[
        Example::new("Print a script of a path", "floe cat ./result/bin/hello"),
        Example::new(
            "Print a file of a path in a cache",
            "floe cat --from https://cache.nixos.org HASH/bin/hello",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-ls(1)", "floe-dump(1)", "floe-install(1)"],
}];
