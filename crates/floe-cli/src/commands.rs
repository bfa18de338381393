//! One file for each command: arguments → engine → output.

pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod key;
pub(crate) mod moving;
pub(crate) mod verify;

use std::io::{self, Write as _};

/// Prints a line of the result on stdout.
pub(crate) fn print(line: impl std::fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
