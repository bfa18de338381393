//! The manual pages of `floe run` and `floe shell`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-run",
        description: &[
            "Runs a program of a store path or a package in place of floe, and installs the path \
                 first if it is not valid. A store below another directory than /nix/store is \
                 mounted at /nix/store for the program alone, in namespaces of its own: other \
                 processes see nothing of it, and no root is needed where the system allows user \
                 namespaces.",
            "The path is protected from collections as long as the program runs. Arguments of \
                 the program follow --.",
        ],
        examples: &[
            Example::new(
                "Run a program of nixpkgs by its name",
                "floe run jq -- --version",
            )
            .on_main_page(),
            Example::new(
                "Run a program of a store of your own, and install it first if it is missing",
                "floe run --root ~/nix-root /nix/store/HASH-hello-2.12.1 -- --greeting=hi",
            ),
            Example::new(
                "Run another program of the path to which a link leads",
                "floe run --root ~/nix-root --program jq ./result -- . file.json",
            ),
        ],
        files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
        see_also: &["floe-shell(1)", "floe-install(1)"],
    },
    Page {
        name: "floe-shell",
        description: &[
            "Runs a shell, or the command after --, with the directories bin of the paths in \
                 front of PATH. As with floe run, paths that are not valid are installed first, \
                 and a store elsewhere is mounted at /nix/store for the shell alone.",
        ],
        examples: &[Example::new(
            "Run a command that finds the programs of two paths",
            "floe shell --root ~/nix-root HASH1 HASH2 -- make",
        )],
        files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
        see_also: &["floe-run(1)", "floe-install(1)"],
    },
];
