//! The manual page of `floe search`.

use crate::page::{Example, LISTS, NAMES, NETRC, NIX_CONF, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-search",
    description: &[
        "Finds packages by words in their names, and prints their names, versions, sources and \
             outputs. It searches the lists and files among the name sources; a Hydra has no list \
             of its packages. Lists have the packages of all systems.",
    ],
    examples: &[
        Example::new(
            "Find packages with a word in their names",
            "floe search ripgrep",
        ),
        Example::new(
            "Search the paths in a file",
            "floe search --names list:store-paths.xz python3 requests",
        ),
        Example::new(
            "Find out whether all name sources reply",
            "floe search --check-sources",
        ),
    ],
    files: &[NIX_CONF, NETRC, NAMES, LISTS],
    see_also: &["floe-install(1)", "floe-run(1)", "nix.conf(5)"],
}];
