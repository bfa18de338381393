//! The manual pages of `floe run` and `floe shell`.

use crate::page::{Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-run",
        examples: &[
            Example::new(
                "Run a program of a store of your own, and install it first if it is missing",
                "floe run --root ~/nix-root /nix/store/HASH-hello-2.12.1 -- --greeting=hi",
            )
            .on_main_page(),
            Example::new(
                "Run another program of the path to which a link leads",
                "floe run --root ~/nix-root --program jq ./result -- . file.json",
            ),
        ],
        files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS],
        see_also: &["floe-shell(1)", "floe-install(1)"],
    },
    Page {
        name: "floe-shell",
        examples: &[Example::new(
            "Run a command that finds the programs of two paths",
            "floe shell --root ~/nix-root HASH1 HASH2 -- make",
        )],
        files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS],
        see_also: &["floe-run(1)", "floe-install(1)"],
    },
];
