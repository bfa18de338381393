//! A client of `nix-daemon --stdio` whose user may not write the store: the daemon serves it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};

/// Forwards the bytes of a client to the daemon at a socket, and back.
///
/// Errors: the daemon cannot be reached, and those of the streams.
pub(super) fn forward(socket: &Path, (input, output): (OwnedFd, OwnedFd)) -> anyhow::Result<()> {
    let mut daemon = UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to the daemon at {}", socket.display()))?;
    let mut to_daemon = daemon.try_clone()?;
    let reader = output.try_clone()?;
    let send = move || {
        // The other direction tells the client about a daemon that has gone.
        let _: io::Result<()> = copy(&mut File::from(input), &mut to_daemon);
        let _: io::Result<()> = to_daemon.shutdown(Shutdown::Write);
        // A client that has gone gets no replies, so the daemon need not go on.
        wait_for_hangup(&reader);
        let _: io::Result<()> = to_daemon.shutdown(Shutdown::Both);
    };
    let thread = thread::Builder::new().spawn(send);
    thread.context("cannot start a thread for the client")?;
    // The process ends with the replies of the daemon, although the client may still send.
    copy(&mut daemon, &mut File::from(output)).context("cannot forward a reply")
}

/// Waits until nothing reads an output any more.
fn wait_for_hangup(output: &OwnedFd) {
    let mut fds = [PollFd::new(output, PollFlags::empty())];
    while matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {}
}

/// Copies bytes until the end, each as soon as it arrives. `io::copy` does not: its splice(2) from
/// a socket to a pipe holds bytes back until more of them arrive.
fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&buffer[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// As much as a pipe holds.
const BUFFER_LEN: usize = 64 * 1024;
