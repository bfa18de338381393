//! The manual page of `floe install`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-install",
    description: &[
        "Fetches the paths and all that they need from binary caches, checks the signature \
             and the hash of each, and registers them in a local store, which Nix then accepts. \
             Valid paths are not fetched again.",
        "Nothing keeps the paths from a collection unless --out-link or --profile makes a GC \
             root of them.",
    ],
    examples: &[
        Example::new(
            "Install a program of nixpkgs from cache.nixos.org, and keep it",
            "floe install --out-link hello hello",
        )
        .on_main_page(),
        Example::new(
            "Install a store path into a store of your own",
            "floe install --root ~/nix-root /nix/store/HASH-hello-2.12.1",
        ),
        Example::new(
            "Install from another cache, and keep the closure from the garbage collector",
            "floe install --from https://cache.example.org --trusted-public-keys NAME:KEY \
             -o result HASH",
        ),
        Example::new(
            "Show what would be fetched and written",
            "floe install --dry-run --root ~/nix-root HASH",
        ),
        Example::new(
            "Bring a profile to the path of a pin; with --every 60s, again each minute",
            "floe install --follow web --from https://cache.example.org --profile web",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-copy(1)", "floe-verify(1)", "nix.conf(5)"],
}];
