//! The manual page of `floe config`.

use crate::page::{Example, NIX_CONF, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-config",
    examples: &[Example::new(
        "Show which caches and keys floe uses, and where they are set",
        "floe config substituters trusted-public-keys",
    )],
    files: &[NIX_CONF],
    see_also: &["nix.conf(5)"],
}];
