//! The binary under test.

pub(crate) mod interrupt;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use floe_testkit::hide_nix_conf;

/// Returns a command that runs the binary under test.
pub(crate) fn floe<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floe"));
    command.args(args).stdin(Stdio::null());
    // A server of another test may have had the same port, so its cached narinfos must not be
    // found.
    command.env("XDG_CACHE_HOME", "/dev/null");
    command.env("NIX_CONFIG", NO_NAMES);
    hide_nix_conf(&mut command);
    command
}

/// Returns a command as [`floe`] does, which a signal that cannot be ignored ends after a time that
/// no healthy run needs.
pub(crate) fn floe_with_time_limit<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let binary = floe(args);
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "25"]).arg(binary.get_program());
    command.args(binary.get_args()).stdin(Stdio::null());
    command.env("XDG_CACHE_HOME", "/dev/null");
    command.env("NIX_CONFIG", NO_NAMES);
    hide_nix_conf(&mut command);
    command
}

/// The configuration of commands that have no other: no test may ask the default name source.
const NO_NAMES: &str = "names =";
