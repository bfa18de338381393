//! The manual pages of `floe key` and of related commands.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-key",
        examples: &[GENERATE, PUBLIC],
        files: &[],
        see_also: &["floe-key-generate(1)", "floe-key-public(1)", "floe-copy(1)"],
    },
    Page {
        name: "floe-key-generate",
        examples: &[GENERATE],
        files: &[],
        see_also: &["floe-key-public(1)", "floe-copy(1)"],
    },
    Page {
        name: "floe-key-public",
        examples: &[PUBLIC],
        files: &[],
        see_also: &["floe-key-generate(1)"],
    },
];

const GENERATE: Example = Example::new(
    "Make a secret key that only you can read",
    "(umask 077; floe key generate cache.example.org-1 > cache.key)",
);

const PUBLIC: Example = Example::new(
    "Print the public key, which the clients of the cache need",
    "floe key public < cache.key",
);
