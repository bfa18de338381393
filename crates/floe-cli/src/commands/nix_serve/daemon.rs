//! `--daemonize`: the server as a process of its own, away from the terminal.
//!
//! A program cannot fork itself in safe code, but it can start itself again: the first process
//! starts a second one with the same words, waits until that listens, and ends.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::NAME;
use crate::commands::serve::process::READY;
use crate::exit::AlreadyReported;

/// Whether these are the words for a daemon, and the user's own words among them.
pub(super) fn is_child(args: &[OsString]) -> (bool, &[OsString]) {
    match args.split_first() {
        Some((first, rest)) if first == CHILD_FLAG => (true, rest),
        _ => (false, args),
    }
}

/// Starts the daemon, and waits until it listens. If it fails, it has said why on the stderr that
/// it shares with this process, and its exit code is passed on.
pub(super) fn start(args: &[OsString]) -> anyhow::Result<()> {
    let attempt = "starting the server in the background";
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
        BufReader::new(stdout)
            .read_line(&mut line)
            .context(attempt)?;
    }
    if line == READY {
        return Ok(());
    }
    let status = child.wait().context(attempt)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(AlreadyReported(code.filter(|code| *code != 0).unwrap_or(1)).into())
}

/// The daemon leaves the session of the terminal, which would otherwise end it.
pub(super) fn leave_session() -> anyhow::Result<()> {
    rustix::process::setsid().context("leaving the session of the terminal")?;
    Ok(())
}

/// No word of a user's looks like this.
const CHILD_FLAG: &str = "--floe-daemon-child";
