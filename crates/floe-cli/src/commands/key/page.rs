//! The manual pages of `floe key` and of related commands.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-key",
        description: &[
            "Makes the keys that sign the paths of a binary cache, and converts them. A key \
                 is a line with a name and a text in base 64, as Nix has it.",
        ],
        examples: &[GENERATE, PUBLIC],
        files: &[],
        see_also: &["floe-key-generate(1)", "floe-key-public(1)", "floe-copy(1)"],
    },
    Page {
        name: "floe-key-generate",
        description: &[
            "Prints a new secret key with a name, by convention that of the cache and a \
                 number. Keep it in a file that only its user can read.",
        ],
        examples: &[GENERATE],
        files: &[],
        see_also: &["floe-key-public(1)", "floe-copy(1)"],
    },
    Page {
        name: "floe-key-public",
        description: &[
            "Reads a secret key from a file or from stdin, and prints its public key. Clients \
                 need it in trusted-public-keys.",
        ],
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
