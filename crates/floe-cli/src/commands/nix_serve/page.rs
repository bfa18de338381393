//! The manual page of `nix-serve`.

use crate::page::{Example, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "nix-serve",
    description: &[
        "Serves the valid paths of a live store as a binary cache, with the options, \
             variables and defaults of nix-serve and nix-serve-ng, so that it can take their \
             place. floe-serve(1) has more settings.",
    ],
    examples: &[
        Example::new(
            "Serve the store of this machine on port 8080 of all addresses",
            "nix-serve --port 8080",
        ),
        Example::new(
            "Sign all paths with a key, and serve on a Unix socket in the background",
            "NIX_SECRET_KEY_FILE=cache.key nix-serve --socket /run/cache.sock --daemonize",
        ),
    ],
    files: &[STORE],
    see_also: &["floe-serve(1)", "floe-key(1)"],
}];
