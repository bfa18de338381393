//! Bytes for a descriptor of the host, which may be a pipe that nobody empties.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;

use floe_engine::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};

/// Why not everything was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteError {
    Cancelled,
    System(Errno),
}

/// Writes everything, whether the descriptor waits by itself or not, and looks at `cancel` as long
/// as the other side takes nothing.
pub(super) fn write_all(file: &File, mut data: &[u8], cancel: &Cancel) -> Result<(), WriteError> {
    let piece_len = piece_len(file);
    while !data.is_empty() {
        if cancel.is_raised() {
            return Err(WriteError::Cancelled);
        }
        let mut polled = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT)];
        match poll(&mut polled, Some(&CANCEL_POLL)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(WriteError::System(error)),
        }
        match write(file, &data[..data.len().min(piece_len)]) {
            Ok(written) => data = &data[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(WriteError::System(error)),
        }
    }
    Ok(())
}

/// How much may be written at once after the descriptor was said to have room. A file never makes
/// its writer wait for somebody else, so there it is everything.
fn piece_len(file: &File) -> usize {
    let kind = file.metadata().map(|metadata| metadata.file_type());
    match kind {
        Ok(kind) if kind.is_file() || kind.is_block_device() => usize::MAX,
        _ => PIECE_LEN,
    }
}

/// A pipe that has room has room for this much (`PIPE_BUF` of Linux), a socket for more.
const PIECE_LEN: usize = 4096;

/// How soon a cancellation is noticed.
const CANCEL_POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
