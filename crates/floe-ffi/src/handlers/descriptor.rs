//! Writes to a descriptor of the host, which may be a pipe without an active reader.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;

use floe_transfer::Cancel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};

/// Writes everything to a blocking or non-blocking descriptor. Checks `cancel` as long as the
/// reader takes nothing. Returns whether everything was written before a cancellation.
pub(super) fn write_all(file: &File, mut data: &[u8], cancel: &Cancel) -> Result<bool, Errno> {
    let piece_len = piece_len(file);
    while !data.is_empty() {
        if cancel.is_raised() {
            return Ok(false);
        }
        let mut polled = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT)];
        match poll(&mut polled, Some(&CANCEL_POLL)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        match write(file, &data[..data.len().min(piece_len)]) {
            Ok(written) => data = &data[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Returns how much one write may contain after poll(2) reported room. Writes to a file never wait
/// for another process, so they have no limit.
fn piece_len(file: &File) -> usize {
    let kind = file.metadata().map(|metadata| metadata.file_type());
    match kind {
        Ok(kind) if kind.is_file() || kind.is_block_device() => usize::MAX,
        _ => PIECE_LEN,
    }
}

/// The room that poll(2) guarantees for a pipe (`PIPE_BUF` of Linux). Sockets have more.
const PIECE_LEN: usize = 4096;

/// How soon a cancellation is noticed.
const CANCEL_POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
