//! The manual page of `floe why`.

use crate::page::{Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-why",
    description: &[
        "Shows why an install of a path would succeed or fail: whether the path is valid and \
             which roots keep it, which caches have it, who signed it and whether that key is \
             trusted, which reply is only remembered, and which paths of the closure no cache \
             supplies. It changes nothing, and fetches only metadata.",
        "The exit code is 0 if an install would succeed.",
    ],
    examples: &[
        Example::new(
            "Show why a path does not come from the caches of nix.conf",
            "floe why --root ~/nix-root /nix/store/HASH-hello-2.12.1",
        ),
        Example::new(
            "Show whether a cache has a closure",
            "floe why --from https://cache.nixos.org /nix/store/HASH-hello-2.12.1",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS],
    see_also: &["floe-install(1)", "floe-info(1)", "floe-roots(1)"],
}];
