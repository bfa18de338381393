//! The manual page of `floe sign`.

use crate::page::{AWS, Example, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-sign",
    description: &[
        "Adds the signatures of keys to paths that a binary cache or a store has \
             already: the named ones, with -r their closures, or all. Other signatures stay. The \
             contents are not read, so sign only what you trust.",
        "To replace the key of a cache, use floe cache rotate-key, which signs only what the \
             old key has signed.",
    ],
    examples: &[
        Example::new(
            "Add the signature of a new key to all paths of a bucket",
            "floe sign --key-file new.key 's3://BUCKET?region=eu-west-1' --all",
        ),
        Example::new(
            "Sign the closure of a build in the local store",
            "floe sign --key-file cache.key auto --recursive ./result",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, AWS],
    see_also: &[
        "floe-cache-rotate-key(1)",
        "floe-copy-sigs(1)",
        "floe-key(1)",
        "floe-push(1)",
        "floe-info(1)",
        "nix(1)",
    ],
}];
