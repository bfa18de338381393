//! The manual page of `floe copy`.

use crate::page::{Example, NARINFOS, NETRC, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-copy",
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
    files: &[STORE, USER_STORE, NIX_CONF, NETRC, NARINFOS],
    see_also: &["floe-install(1)", "floe-key(1)", "nix.conf(5)"],
}];
