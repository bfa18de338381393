//! The manual page of `floe link-names`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-link-names",
    description: &[
        "Creates links to floe under the names of Nix's programs: nix, nix-collect-garbage, \
             nix-copy-closure, nix-daemon, nix-env and nix-store. nix copy, nix-copy-closure and \
             deploy tools then find them on this machine over SSH, although it has no Nix.",
        "Creates none if the machine has one of these programs already.",
    ],
    examples: &[Example::new(
        "Let nix copy and deploy tools reach this machine",
        "floe link-names /usr/local/bin",
    )],
    files: &[],
    see_also: &["floe-nix-store(1)", "floe-nix-daemon(1)", "floe-nix-env(1)"],
}];
