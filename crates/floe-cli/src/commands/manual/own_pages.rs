//! The manual pages of `floe completions` and `floe man`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[
    Page {
        name: "floe-completions",
        description: &[
            "Prints a script that completes commands, options, paths, names of paths and \
                 generations in a shell. The script calls floe, which must be in PATH.",
        ],
        examples: &[Example::new(
            "Complete commands and options in this bash",
            "source <(floe completions bash)",
        )],
        files: &[],
        see_also: &["floe-man(1)"],
    },
    Page {
        name: "floe-man",
        description: &[
            "Prints the manual page of floe in the language of troff, or writes the pages of \
                 all commands into a directory.",
        ],
        examples: &[
            Example::new("Read the manual page of floe", "floe man | man -l -"),
            Example::new(
                "Write the pages of all commands where man finds them",
                "floe man ~/.local/share/man/man1",
            ),
        ],
        files: &[],
        see_also: &["man(1)"],
    },
];
