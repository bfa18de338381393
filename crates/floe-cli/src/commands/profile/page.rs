//! The manual pages of `floe profile` and of related commands.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-profile",
        description: &[
            "A profile is a link to one of several generations. Each floe install --profile, \
                 and each change by nix-env, makes a new generation, which is a GC root. The \
                 commands show, switch and delete the generations of floe and of nix-env alike.",
        ],
        examples: &[PROFILE],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-list(1)", "floe-gc(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-list",
        description: &[
            "Prints number and time of each generation, and which one is current, as nix-env does.",
        ],
        examples: &[PROFILE],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-history",
        description: &[
            "Prints each generation and the packages that it added, removed or changed, with \
                 their versions and sizes.",
        ],
        examples: &[Example::new(
            "Show what each generation of the default profile changed",
            "floe profile history",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-diff-closures",
        description: &[
            "Prints which packages each generation has added, removed or changed, by the \
                 names and versions of the paths in the closures.",
        ],
        examples: &[Example::new(
            "Show which versions each generation of the system changed",
            "floe profile diff-closures --profile /nix/var/nix/profiles/system",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-rollback",
        description: &[
            "Switches to the generation before the current one, or to that of --to. No \
                 generation is deleted. The switch is one rename: a crash leaves the old or the \
                 new generation.",
        ],
        examples: &[Example::new(
            "Switch back to the generation before",
            "floe profile rollback --profile ./profile",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-switch",
        description: &[
            "Makes the generation with a number the current one. No generation is deleted. \
                 The switch is one rename: a crash leaves the old or the new generation.",
        ],
        examples: &[Example::new(
            "Switch to generation 3",
            "floe profile switch --profile ./profile 3",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-wipe-history",
        description: &[
            "Deletes all generations but the current one, or those that were not in use for a \
                 time. Their paths stay until the next collection.",
        ],
        examples: &[Example::new(
            "Delete the generations that were not in use in the last 30 days",
            "floe profile wipe-history --older-than 30d",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-delete-generations",
        description: &[
            "Deletes generations by their numbers, all old ones, those older than a number of \
                 days (30d), or all but the last ones (+5). The current generation stays. The \
                 paths stay until the next collection.",
        ],
        examples: &[Example::new(
            "Keep the current generation and the four before it",
            "floe profile delete-generations +5",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
];

const PROFILE: Example = Example::new(
    "List the generations of a profile",
    "floe profile list --profile /nix/var/nix/profiles/system",
);
