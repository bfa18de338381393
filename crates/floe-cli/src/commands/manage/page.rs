//! The manual pages of `floe list` and of related commands.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-list",
        examples: &[Example::new(
            "List what links and profiles keep in a store of your own",
            "floe list --root ~/nix-root",
        )
        .on_main_page()],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-roots(1)", "floe-uninstall(1)", "floe-profile(1)"],
    },
    Page {
        name: "floe-uninstall",
        examples: &[Example::new(
            "Remove the link or the profile that keeps a program",
            "floe uninstall --root ~/nix-root hello",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-list(1)", "floe-gc(1)"],
    },
    Page {
        name: "floe-roots",
        examples: &[Example::new(
            "Show what keeps a path from the garbage collector",
            "floe roots --why /nix/store/HASH-NAME",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-list(1)", "floe-gc(1)"],
    },
];
