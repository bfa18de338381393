//! The files and the related pages that manual pages name.

/// A file that floe reads or writes, or several with the same purpose.
pub(super) struct FileEntry {
    /// The pages that list it.
    pub(super) pages: &'static [&'static str],
    pub(super) names: &'static str,
    pub(super) content: &'static str,
}

pub(super) const FILES: &[FileEntry] = &[
    FileEntry {
        pages: &[
            "floe",
            "floe-install",
            "floe-copy",
            "floe-push",
            "floe-verify",
            "floe-info",
            "floe-serve",
            "nix-serve",
        ],
        names: "/nix/store, /nix/var/nix/db/db.sqlite",
        content: "the store of this machine and its database. With a root directory DIR, both are \
                  below DIR.",
    },
    FileEntry {
        pages: &[
            "floe",
            "floe-install",
            "floe-copy",
            "floe-push",
            "floe-verify",
            "floe-info",
        ],
        names: "$XDG_DATA_HOME/nix/root (~/.local/share/nix/root)",
        content: "the root directory of a user's own store, on a machine without /nix/var/nix",
    },
    FileEntry {
        pages: &[
            "floe",
            "floe-install",
            "floe-copy",
            "floe-push",
            "floe-verify",
            "floe-info",
            "floe-config",
        ],
        names: "/etc/nix/nix.conf, ~/.config/nix/nix.conf",
        content: "the settings of the system and of the user; floe-config(1) prints them",
    },
    FileEntry {
        pages: &[
            "floe",
            "floe-install",
            "floe-copy",
            "floe-push",
            "floe-verify",
            "floe-info",
        ],
        names: "/etc/nix/netrc",
        content: "user names and passwords for caches; the setting netrc-file names other files",
    },
    FileEntry {
        pages: &["floe", "floe-push"],
        names: "~/.aws/credentials, ~/.aws/config",
        content: "credentials and regions for buckets of S3, in profiles",
    },
    FileEntry {
        pages: &[
            "floe",
            "floe-install",
            "floe-copy",
            "floe-push",
            "floe-verify",
            "floe-info",
        ],
        names: "$XDG_CACHE_HOME/floe/narinfos.sqlite (~/.cache/floe/narinfos.sqlite)",
        content: "replies of caches about paths, so that floe need not query them again. You may \
                  delete the file at any time.",
    },
];

/// Returns the pages that a page refers to, with their sections.
pub(super) fn see_also(page: &str) -> Vec<String> {
    let related = RELATED.iter().find(|(name, _)| *name == page);
    let related = related.map_or(&[][..], |(_, related)| related);
    let pages = ["floe(1)"].iter().chain(related);
    pages.map(ToString::to_string).collect()
}

/// The related pages of a page, beside floe(1).
const RELATED: &[(&str, &[&str])] = &[
    (
        "floe-install",
        &["floe-copy(1)", "floe-verify(1)", "nix.conf(5)"],
    ),
    (
        "floe-copy",
        &["floe-install(1)", "floe-key(1)", "nix.conf(5)"],
    ),
    (
        "floe-nix-copy-closure",
        &["floe-copy(1)", "nix-copy-closure(1)", "ssh(1)"],
    ),
    ("floe-push", &["floe-copy(1)", "floe-key(1)", "nix.conf(5)"]),
    ("floe-verify", &["floe-install(1)", "nix-store(1)"]),
    ("floe-info", &["floe-copy(1)", "nix.conf(5)"]),
    ("floe-config", &["nix.conf(5)"]),
    (
        "floe-serve",
        &["floe-serve-auth(1)", "floe-key(1)", "nix-serve(1)"],
    ),
    ("floe-serve-auth", &["floe-serve(1)", "htpasswd(1)"]),
    ("floe-serve-auth-add-user", &["floe-serve-auth(1)"]),
    ("floe-serve-auth-add-token", &["floe-serve-auth(1)"]),
    ("floe-serve-auth-remove", &["floe-serve-auth(1)"]),
    ("floe-serve-auth-list", &["floe-serve-auth(1)"]),
    ("nix-serve", &["floe-serve(1)", "floe-key(1)"]),
    (
        "floe-key",
        &["floe-key-generate(1)", "floe-key-public(1)", "floe-copy(1)"],
    ),
    ("floe-key-generate", &["floe-key-public(1)", "floe-copy(1)"]),
    ("floe-key-public", &["floe-key-generate(1)"]),
    ("floe-bench", &["floe-bench-copy(1)"]),
    ("floe-bench-copy", &["perf(1)"]),
    ("floe-man", &["man(1)"]),
];
