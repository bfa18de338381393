//! One file for each command: arguments → engine → output.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod disk_space;
pub(crate) mod gc_roots;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod key;
pub(crate) mod manual;
mod mount;
pub(crate) mod nix_serve;
pub(crate) mod run_copy;
pub(crate) mod serve;
pub(crate) mod verify;

use std::io::{self, Write as _};

use anyhow::Context as _;

/// Prints a line of the result on stdout. A reader that has gone away, as `head` does, is no
/// failure: the exit code still tells what became of the work.
pub(crate) fn print(line: impl std::fmt::Display) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("writing the result to stdout")
        }
        _ => Ok(()),
    }
}
