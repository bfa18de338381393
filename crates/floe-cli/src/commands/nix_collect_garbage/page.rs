//! The manual page of `floe nix-collect-garbage`.

use crate::page::{Example, NIX_CONF, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-nix-collect-garbage",
    description: &[
        "Deletes dead paths as floe gc does, with the options of nix-collect-garbage. Under this \
             name, scripts and timers find it.",
    ],
    examples: &[Example::new(
        "Delete old generations of all profiles, and what only they kept",
        "floe nix-collect-garbage -d",
    )],
    files: &[STORE, NIX_CONF],
    see_also: &["floe-gc(1)", "nix-collect-garbage(1)"],
}];
