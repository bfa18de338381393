//! The manual page of `floe sign`.

use crate::page::{AWS, Example, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-sign",
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
    see_also: &["floe-key(1)", "floe-push(1)", "floe-info(1)", "nix(1)"],
}];
