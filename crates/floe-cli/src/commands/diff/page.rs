//! The manual page of `floe diff`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-diff",
    description: &[
        "Shows which packages and versions two closures of a store or binary cache differ in, \
             with the lines of nix store diff-closures: the versions before and after, and by how \
             much the NARs of the package became larger or smaller. ∅ means no version, and ε an \
             empty one. A package with the same versions is shown if its size changed by 8 KiB or \
             more.",
    ],
    examples: &[
        Example::new(
            "Show what changed between two generations of a profile",
            "floe diff /nix/var/nix/profiles/system-1-link /nix/var/nix/profiles/system-2-link",
        ),
        Example::new(
            "Compare two closures in a cache",
            "floe diff --from https://cache.nixos.org HASH1 HASH2",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-du(1)", "floe-profile-list(1)", "nix(1)"],
}];
