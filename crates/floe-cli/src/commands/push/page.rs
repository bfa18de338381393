//! The manual page of `floe push`.

use crate::page::{AWS, Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-push",
    description: &[
        "Copies closures of the local store into a binary cache, compresses and signs them. \
             The cache is asked which paths it has, and only the others are sent. Present paths \
             that lack the signature of a key get it.",
    ],
    examples: &[
        Example::new(
            "Push the result of a build to a bucket of S3, signed",
            "floe push --to 's3://BUCKET?region=eu-west-1' --secret-key-file cache.key ./result",
        )
        .on_main_page(),
        Example::new(
            "Push paths to a web server as a build prints them",
            "make-paths | floe push --to https://cache.example.org --stdin --follow",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, AWS, NARINFOS],
    see_also: &["floe-copy(1)", "floe-key(1)", "nix.conf(5)"],
}];
