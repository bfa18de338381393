//! The manual pages of `floe profile` and of related commands.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-profile",
        examples: &[PROFILE],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-list(1)", "floe-gc(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-list",
        examples: &[PROFILE],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-history",
        examples: &[Example::new(
            "Show what each generation of the default profile changed",
            "floe profile history",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-diff-closures",
        examples: &[Example::new(
            "Show which versions each generation of the system changed",
            "floe profile diff-closures --profile /nix/var/nix/profiles/system",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-rollback",
        examples: &[Example::new(
            "Switch back to the generation before",
            "floe profile rollback --profile ./profile",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-switch",
        examples: &[Example::new(
            "Switch to generation 3",
            "floe profile switch --profile ./profile 3",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-wipe-history",
        examples: &[Example::new(
            "Delete the generations that were not in use in the last 30 days",
            "floe profile wipe-history --older-than 30d",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-profile(1)", "nix-env(1)"],
    },
    Page {
        name: "floe-profile-delete-generations",
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
