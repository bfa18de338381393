//! The manual page of `floe doctor`.

use crate::page::{AWS, Example, NAMES, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-doctor",
    description: &[
        "Checks what floe needs: the configuration, the caches, the sources of names, the store, \
             its file system, and the namespaces of floe run. Each problem comes with a remedy.",
        "It changes nothing. To try the file system, it makes a directory in the store for a \
             moment.",
    ],
    examples: &[
        Example::new("Check everything", "floe doctor"),
        Example::new(
            "Check a cache before it becomes a substituter",
            "floe doctor --from https://cache.example.org --trusted-public-keys NAME:KEY",
        ),
        Example::new(
            "Check the store below another directory without the network",
            "floe doctor --offline --root ~/nix-root",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NAMES, AWS],
    see_also: &[
        "floe-config(1)",
        "floe-verify(1)",
        "floe-why(1)",
        "nix.conf(5)",
    ],
}];
