//! The manual pages of `floe bench` and `floe bench-copy`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-bench",
        description: &[
            "Measures how long programs take for the same work, in turns, and compares them. \
                 Each result is checked before its time counts.",
        ],
        examples: &[COPY],
        files: &[],
        see_also: &["floe-bench-copy(1)"],
    },
    Page {
        name: "floe-bench-copy",
        description: &[
            "Copies closures with several programs or several versions of floe in turns, \
                 checks each result, and prints medians and ratios with their intervals.",
        ],
        examples: &[COPY],
        files: &[],
        see_also: &["perf(1)"],
    },
];

const COPY: Example = Example::new(
    "Compare floe with Nix for a closure of cache.nixos.org",
    "floe bench copy --path HASH --scenario cache-tmpfs=https://cache.nixos.org",
);
