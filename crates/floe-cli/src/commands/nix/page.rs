//! The manual pages of `floe nix`.

use crate::page::{Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-nix",
        description: &[
            "Does what some commands of nix do, and prints what scripts read as the newest Nix \
                 prints it. Under the name nix, these commands have Nix's names, and copy, run, \
                 shell and commands of nix store are those of floe. All others are refused.",
        ],
        examples: &[SIZES],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-info(1)", "floe-link-names(1)", "nix(1)"],
    },
    Page {
        name: "floe-nix-path-info",
        description: &[
            "Prints store paths, references first, and with options their sizes, signatures and \
                 metadata. A path that the store does not have is an error, or null in JSON.",
        ],
        examples: &[SIZES],
        files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS],
        see_also: &["floe-info(1)", "floe-list(1)", "nix3-path-info(1)"],
    },
    Page {
        name: "floe-nix-store-info",
        description: &[
            "Opens a store or binary cache, and prints its URL on stderr. A local store and a \
                 daemon also have a version, and tell whether they trust the user.",
        ],
        examples: &[Example::new(
            "Check that a daemon of another machine answers",
            "floe nix store-info --store ssh-ng://root@HOST",
        )],
        files: &[STORE, USER_STORE, NIX_CONF, NETRC],
        see_also: &["floe-config(1)", "nix3-store-info(1)"],
    },
    Page {
        name: "floe-nix-store-dump-path",
        description: &[
            "Writes the NAR of a valid path of a local store to standard output. floe nix-store \
                 --restore unpacks it.",
        ],
        examples: &[Example::new(
            "Count the bytes of a NAR",
            "floe nix store-dump-path /nix/store/HASH-hello-2.12.1 | wc -c",
        )],
        files: &[STORE, USER_STORE, NIX_CONF],
        see_also: &["floe-nix-store(1)", "nix3-store-dump-path(1)"],
    },
    Page {
        name: "floe-nix-config-show",
        description: &[
            "Prints the settings of nix.conf that floe knows with their values, or the value of \
                 one of them. floe config also prints where each value comes from.",
        ],
        examples: &[Example::new(
            "Print the substituters",
            "floe nix config-show substituters",
        )],
        files: &[NIX_CONF],
        see_also: &["floe-config(1)", "nix3-config-show(1)", "nix.conf(5)"],
    },
];

const SIZES: Example = Example::new(
    "Print the sizes of a path and of its closure",
    "floe nix path-info --size --closure-size /nix/store/HASH-hello-2.12.1",
);
