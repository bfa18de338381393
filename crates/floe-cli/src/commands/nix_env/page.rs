//! The manual page of `floe nix-env`.

use crate::page::{Example, NIX_CONF, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-nix-env",
    description: &[
        "Switches profiles with the options of nix-env, as deploy tools call it on the target. \
             Under the name nix-env, they find it. floe evaluates nothing, so it installs no \
             packages by their attributes; floe install takes names and paths.",
    ],
    examples: &[Example::new(
        "Make a system the newest generation of its profile",
        "floe nix-env -p /nix/var/nix/profiles/system --set /nix/store/HASH-NAME",
    )],
    files: &[STORE, NIX_CONF],
    see_also: &["floe-profile(1)", "floe-nix-store(1)", "nix-env(1)"],
}];
