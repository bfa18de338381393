//! The binary under test.

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
    hide_nix_conf(&mut command);
    command
}
