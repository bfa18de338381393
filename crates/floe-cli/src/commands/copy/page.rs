//! The manual page of `floe copy`.

use crate::page::{Example, NAMES, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-copy",
    description: &[
        "Copies the paths with their closures from one store or binary cache to another: a \
             local store, file://, http://, https://, s3://, ssh-ng://, ssh:// or a Nix daemon. \
             Paths that the target has are left out.",
        "Into a store, a path needs the signature of a trusted key, or comes from a store of \
             this machine.",
    ],
    examples: &[
        Example::new(
            "Copy paths to a cache as a build prints them",
            "make-paths | floe copy --to file:///srv/cache --stdin --follow",
        ),
        Example::new(
            "Make a signed binary cache of the store of this machine",
            "floe copy --to 'file:///srv/cache?compression=zstd&secret-key=cache.key' --all",
        )
        .on_main_page(),
        Example::new(
            "Copy a closure to another machine with Nix, over SSH",
            "floe copy --to ssh-ng://root@HOST ./result",
        )
        .on_main_page(),
        Example::new(
            "Copy a closure from a store of another root directory, without signatures",
            "floe copy --from /mnt --no-check-sigs /nix/store/HASH-NAME",
        ),
    ],
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS, NAMES],
    see_also: &["floe-install(1)", "floe-key(1)", "nix.conf(5)"],
}];
