//! `--daemonize`: the server as a background process without a terminal.
//!
//! Safe code cannot fork, but it can start the program again. The first process starts a second one
//! with the same arguments, waits until the second one listens, and ends.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::{NAME, messages};
use crate::commands::serve::process::READY;
use crate::exit::AlreadyReported;

/// Returns whether this is the background process, and the user's own arguments.
pub(super) fn is_child(args: &[OsString]) -> (bool, &[OsString]) {
    match args.split_first() {
        Some((first, rest)) if first == CHILD_FLAG => (true, rest),
        _ => (false, args),
    }
}

/// Starts the background process, and waits until it listens.
///
/// Errors: the process cannot be started. If the process itself fails, it reports the cause on the
/// shared stderr, and the error only carries its exit code.
pub(super) fn start(args: &[OsString]) -> anyhow::Result<()> {
    let attempt = messages::DAEMON;
    let mut child = Command::new(env::current_exe().context(attempt)?)
        .arg0(NAME)
        .arg(CHILD_FLAG)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context(attempt)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut line);
        read.context(attempt)?;
    }
    if line == READY {
        return Ok(());
    }
    let status = child.wait().context(attempt)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(AlreadyReported(code.filter(|code| *code != 0).unwrap_or(1)).into())
}

/// Leaves the session of the terminal, whose end would end the background process.
pub(super) fn leave_session() -> anyhow::Result<()> {
    rustix::process::setsid().context(messages::SESSION)?;
    Ok(())
}

/// The argument that marks the background process. No user needs an argument like this.
const CHILD_FLAG: &str = "--floe-daemon-child";
