//! The manual page of `floe config`.

use crate::page::{Example, NIX_CONF, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-config",
    description: &[
        "Prints the settings of nix.conf that floe uses, as lines of a nix.conf. The comment \
             of each line tells which file, variable or option has set it.",
    ],
    examples: &[Example::new(
        "Show which caches and keys floe uses, and where they are set",
        "floe config substituters trusted-public-keys",
    )],
    files: &[NIX_CONF],
    see_also: &["nix.conf(5)"],
}];
