//! The manual pages of `floe pin`, `floe unpin` and `floe pins`.

use crate::page::{Example, NETRC, NIX_CONF, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-pin",
        description: &[
            "Gives a path in a binary cache a name, by which floe install --from URL NAME finds \
                 it. The pin has a serial number and the time, and is signed. A machine accepts \
                 only pins with a signature by a trusted key, and none that is older than one \
                 that it has seen.",
            "A pin that exists moves to the path. The same path again renews it.",
        ],
        examples: &[Example::new(
            "Name a path that was pushed before",
            "floe pin web ./result --to https://cache.example.org --secret-key-file cache.key",
        )],
        files: &[NIX_CONF, NETRC],
        see_also: &[
            "floe-unpin(1)",
            "floe-pins(1)",
            "floe-push(1)",
            "floe-install(1)",
        ],
    },
    Page {
        name: "floe-unpin",
        description: &[
            "Deletes pins of a binary cache. Machines that have installed their paths keep them.",
        ],
        examples: &[Example::new(
            "Withdraw a name",
            "floe unpin web --to https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC],
        see_also: &["floe-pin(1)", "floe-pins(1)"],
    },
    Page {
        name: "floe-pins",
        description: &[
            "Shows the pins of a binary cache with their paths and ages, and which trusted key \
                 has signed each. A server behind HTTP has no list of its pins; it needs their \
                 names.",
        ],
        examples: &[Example::new(
            "Show the pins of a cache",
            "floe pins --from https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC],
        see_also: &["floe-pin(1)", "floe-unpin(1)"],
    },
];
