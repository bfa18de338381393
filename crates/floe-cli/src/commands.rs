//! One module for each command: from arguments over the libraries to output.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod gc;
pub(crate) mod gc_roots;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod key;
pub(crate) mod manage;
pub(crate) mod manual;
mod mount;
pub(crate) mod nix_copy_closure;
pub(crate) mod nix_serve;
pub(crate) mod optimise;
pub(crate) mod push;
pub(crate) mod run;
pub(crate) mod run_copy;
pub(crate) mod serve;
pub(crate) mod verify;

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use anyhow::{Context as _, anyhow};
use nix::errno::Errno;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::messages;

/// Prints a line of the result on stdout.
///
/// A reader that closes the pipe early, such as `head`, is not a failure: the exit code still
/// reports the outcome of the work.
pub(crate) fn print(line: impl std::fmt::Display) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context(messages::STDOUT)
        }
        _ => Ok(()),
    }
}

/// Reports the errors of stdout that its file system shows only at a close, as NFS does. The close
/// of a copy of the descriptor is enough, and stdout stays open.
///
/// Errors: what was printed is lost.
pub(crate) fn finish_stdout() -> anyhow::Result<()> {
    let finish = || {
        io::stdout().flush()?;
        let copy = io::stdout().as_fd().try_clone_to_owned()?;
        match nix::unistd::close(copy) {
            Err(error) if error != Errno::EINTR => Err(io::Error::from(error)),
            _ => Ok(()),
        }
    };
    match finish() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context(messages::STDOUT)
        }
        _ => Ok(()),
    }
}

/// Returns random bytes of the system, for keys and tokens.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow!(messages::NO_RANDOMNESS))?;
    Ok(bytes)
}
