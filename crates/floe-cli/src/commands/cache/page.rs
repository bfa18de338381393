//! The manual pages of `floe cache`.

use crate::page::{AWS, Example, NETRC, NIX_CONF, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-cache",
        description: &[
            "Looks after a whole binary cache in a directory, in a bucket, or on a server that \
             lists its objects. floe push fills it.",
        ],
        examples: &[INFO],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &[
            "floe-push(1)",
            "floe-pin(1)",
            "floe-sign(1)",
            "floe-verify(1)",
        ],
    },
    Page {
        name: "floe-cache-init",
        description: &[
            "Makes an empty cache: a nix-cache-info in a directory or a bucket. Parameters of the \
             URI, such as priority=30, are written there. A cache that exists stays as it is.",
        ],
        examples: &[Example::new(
            "Make a cache in a directory",
            "floe cache init file:///srv/cache",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-push(1)"],
    },
    Page {
        name: "floe-cache-info",
        description: &[
            "Shows how many paths a cache has, their sizes before and after compression, their \
             ages, the files that no path uses, and the cost of a month at a given price. It reads \
             all narinfos, and no contents.",
        ],
        examples: &[INFO],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-list(1)", "floe-du(1)"],
    },
    Page {
        name: "floe-cache-list",
        description: &[
            "Lists all paths of a cache, oldest first, with the date, the size of the NAR and the \
             size of its file, in bytes.",
        ],
        examples: &[Example::new(
            "List the paths of a cache",
            "floe cache list https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-info(1)", "floe-info(1)"],
    },
    Page {
        name: "floe-cache-gc",
        description: &[
            "Deletes the paths of a cache that neither a pin nor a path written within the time of \
             --keep-since needs, and the files that no path uses.",
            "Others may push meanwhile. floe cache gc announces in the cache what it will delete, \
             waits for the grace period and for the pushes that run, looks again, and deletes \
             narinfos first. A push of floe keeps what it needs, or waits for the end. A push of \
             Nix does not notice a collection: give a grace period that is longer than such a push \
             takes.",
        ],
        examples: &[Example::new(
            "Show what a collection would delete that keeps pins and the paths of 30 days",
            "floe cache gc --dry-run --keep-since 30d https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-pin(1)", "floe-cache-info(1)", "floe-cache-delete(1)"],
    },
    Page {
        name: "floe-cache-verify",
        description: &[
            "Finds what makes paths of a cache unusable: narinfos that do not parse, references \
             and NARs that are missing, and files of a wrong size. Files that no narinfo names are \
             listed as unused. With --contents it also reads the NARs and compares their hashes. \
             It changes nothing; floe cache repair fetches damaged paths again.",
        ],
        examples: &[Example::new(
            "Read a tenth of the paths of a cache",
            "floe cache verify --contents --sample 10% https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-repair(1)", "floe-verify(1)"],
    },
    Page {
        name: "floe-cache-repair",
        description: &[
            "Fetches damaged paths, and references that are missing, from other caches or stores, \
             and replaces them in the cache. It finds what floe cache verify finds, with \
             --contents also NARs with other contents.",
            "A path needs the NAR hash, the size and the references of the damaged narinfo, and \
             then gets its signatures and no other, or a signature by a trusted key. --delete \
             deletes the narinfos of paths that no source has: clients then query other caches, \
             and the next push uploads the paths again. Others may push meanwhile.",
        ],
        examples: &[Example::new(
            "Show what a repair would fetch from the store of this machine",
            "floe cache repair --dry-run --from auto https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-verify(1)", "floe-push(1)"],
    },
    Page {
        name: "floe-cache-rotate-key",
        description: &[
            "Signs with a new key each path, pin and realisation that has a valid signature by the \
             old key. An object that the old key has not signed stays as it is. Once all clients \
             trust the new key, --remove-old removes the signatures by the old one.",
            "Pushes may go on meanwhile. Let them use the new key first, or run the command again \
             after the last push with the old one.",
        ],
        examples: &[Example::new(
            "Sign with a new key what the old one has signed",
            "floe cache rotate-key --old-key NAME:KEY --key-file next.key \
             https://cache.example.org",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-key(1)", "floe-sign(1)", "floe-pin(1)"],
    },
    Page {
        name: "floe-cache-delete",
        description: &[
            "Deletes paths from a cache: the narinfos first, then the files that no other narinfo \
             names. It refuses a path to which others refer, unless --also-referrers deletes \
             these too. Do not run it while others push to the cache: a push may rely on a path \
             that it deletes.",
        ],
        examples: &[Example::new(
            "Show what the deletion of a path and of all that need it would delete",
            "floe cache delete --dry-run --also-referrers https://cache.example.org \
             /nix/store/HASH-NAME",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-list(1)", "floe-unpin(1)"],
    },
    Page {
        name: "floe-cache-export",
        description: &[
            "Writes the closures of paths into one file, in the format of nix-store --export: \
             references first. nix-store --import and floe cache import read it.",
            "The file has no signatures, so a path needs one by a trusted key. Without \
             --output-file, the export goes to stdout. One that was interrupted has no end, and no \
             program accepts it.",
        ],
        examples: &[Example::new(
            "Write a closure into a file for a machine without a network",
            "floe cache export --output-file closure.export https://cache.example.org \
             /nix/store/HASH-NAME",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-import(1)", "floe-copy(1)"],
    },
    Page {
        name: "floe-cache-import",
        description: &[
            "Adds the paths of a file that floe cache export or nix-store --export has written to \
             a cache, compressed and signed as floe push does. It reads the whole file before it \
             writes to the cache. An export on a pipe is kept in a temporary file meanwhile.",
        ],
        examples: &[Example::new(
            "Add the paths of an export to a cache",
            "floe cache import file:///srv/cache closure.export",
        )],
        files: &[NIX_CONF, NETRC, AWS],
        see_also: &["floe-cache-export(1)", "floe-push(1)"],
    },
];

const INFO: Example = Example::new(
    "Show the size of a cache and the cost of a month",
    "floe cache info --price 0.023 https://cache.example.org",
);
