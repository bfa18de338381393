//! The manual page of `floe nix-store`.

use crate::page::{Example, NIX_CONF, Page, STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-nix-store",
    description: &[
        "Does what nix-store does, with its options. Under the name nix-store, it lets nix copy, \
             nix-copy-closure and deploy tools copy closures to and from this machine by ssh://, \
             although it has no Nix. floe builds nothing, and says so to a client that wants a \
             build. Scripts read from its other operations what they read from Nix's.",
        "The client may add paths without signatures if its user owns the store. Otherwise paths \
             need a signature by a trusted key, or a content address.",
    ],
    examples: &[
        Example::new(
            "Serve the store below /mnt to an installer, as nixos-anywhere demands",
            "floe nix-store --serve --write --store 'local?root=/mnt'",
        ),
        Example::new(
            "Print the closure of a path, references first",
            "floe nix-store --query --requisites /nix/store/HASH-hello-2.12.1",
        ),
        Example::new(
            "Register the paths of an image by the rows that it contains",
            "floe nix-store --load-db < /nix-path-registration",
        ),
    ],
    files: &[STORE, NIX_CONF],
    see_also: &["floe-copy(1)", "floe-nix-copy-closure(1)", "nix-store(1)"],
}];
