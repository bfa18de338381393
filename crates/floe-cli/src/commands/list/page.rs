//! The manual page of `floe list`.

use crate::page::{Example, NIX_CONF, Page, STORE, USER_STORE};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-list",
    description: &[
        "Shows what links and profiles keep, with the size of each path, the size of its \
             closure, and since when. With --all it shows all valid paths. The names in the first \
             column stand for the paths in other commands.",
    ],
    examples: &[Example::new(
        "List what links and profiles keep in a store of your own",
        "floe list --root ~/nix-root",
    )
    .on_main_page()],
    files: &[STORE, USER_STORE, NIX_CONF],
    see_also: &["floe-roots(1)", "floe-uninstall(1)", "floe-profile(1)"],
}];
