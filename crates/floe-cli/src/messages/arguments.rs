//! Texts about single values of the command line. clap, and the parser of nix-serve's options, put
//! the name of the option before them.

use std::io;

use anyhow::Error;

pub(crate) const NOT_A_NUMBER: &str = "it is not a whole number";

// Paths on stdin

pub(crate) fn long_line(max: u64) -> String {
    format!(
        "cannot read paths from stdin: a line has more than {max} bytes; put one path in each line"
    )
}

pub(crate) fn no_path_in_line(number: usize, line: &str) -> String {
    format!(
        "cannot read paths from stdin: line {number} of those that are not empty is not a store \
         path: {line:?}; put one path in each line, and no comments"
    )
}

pub(crate) fn too_many_lines(max: usize) -> String {
    format!("cannot read paths from stdin: there are more than {max} lines; copy them in parts")
}

pub(crate) fn cannot_read_stdin(error: io::Error) -> Error {
    Error::new(error).context("cannot read paths from stdin")
}
