//! The manual page of `floe hash`.

use crate::page::{Example, Page};

/// Examples, files and related pages.
pub(crate) const PAGES: &[Page] = &[Page {
    name: "floe-hash",
    description: &[
        "Prints the hashes of files and directories, one in each line: those of their NARs, which \
             are the hashes of fetched trees in Nix expressions, or with --flat those of the bytes \
             of files. A symbolic link stands for itself in a NAR, and for its file with --flat.",
        "With --convert, prints other forms of hashes. A hash without its algorithm needs --type.",
    ],
    examples: &[
        Example::new("Print the hash of a tree", "floe hash ./source"),
        Example::new(
            "Print the hash of a file that fetchurl fetches",
            "floe hash --flat source.tar.gz",
        ),
        Example::new(
            "Print another form of a hash",
            "floe hash --convert --to base16 sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
        ),
    ],
    files: &[],
    see_also: &["floe-add(1)", "floe-verify(1)", "nix(1)"],
}];
