//! The manual page of `floe nix-daemon`.

use crate::page::{Example, NIX_CONF, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-nix-daemon",
    description: &[
        "Stands in the place of the Nix daemon for clients that use ssh-ng://. Under the name \
             nix-daemon, sshd finds it. floe does every operation that neither builds nor \
             evaluates; docs/deploying.md has a table.",
        "The client may add paths without signatures if its user owns the store. Otherwise paths \
             need a signature by a trusted key, or a content address.",
    ],
    examples: &[Example::new(
        "Serve the store below /mnt to one client",
        "floe nix-daemon --stdio --store 'local?root=/mnt'",
    )],
    files: &[STORE, NIX_CONF],
    see_also: &["floe-copy(1)", "floe-nix-store(1)", "nix-daemon(8)"],
}];
