//! The byte stream to one client.
//!
//! Every read, write and `sendfile` of a connection goes through [`Transport`], so only this file
//! knows what the bytes on the socket look like. If [`Transport::can_send_files`] is false, files
//! pass through the write buffer.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::sendfile;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// The byte stream to one client, over a non-blocking socket.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: OwnedFd,
    /// Whether [`Transport::send_file`] may be called. Cleared by the first file that `sendfile`
    /// does not support. The files of a store are on one file system, so the next file would not
    /// work either.
    pub(crate) can_send_files: bool,
    /// How many bytes the socket has taken.
    pub(crate) sent: u64,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes of the client.
    Bytes {
        len: usize,
        /// Whether the socket had nothing left after this read.
        drained: bool,
    },
    /// Nothing has come yet.
    Blocked,
    /// The client has closed its end, or the connection has failed.
    Closed,
}

/// The result of sending a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSent {
    /// This many bytes; zero if the file ends before the offset.
    Bytes(usize),
    /// The socket takes no more for now.
    Blocked,
    /// The file has to be read and written instead. From now on
    /// [`Transport::can_send_files`] is false.
    Unsupported,
}

/// Whether more bytes follow a write at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteHint {
    /// The kernel may wait for them, to fill a packet.
    MoreFollows,
    /// The kernel sends what it has.
    Last,
}

impl Transport {
    pub(crate) fn plain(socket: OwnedFd) -> Transport {
        Transport {
            socket,
            can_send_files: true,
            sent: 0,
        }
    }

    /// The socket, to wait for its events.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Received {
        let len = buffer.len();
        match retry_on_intr(|| recv(&self.socket, &mut *buffer, RecvFlags::empty())) {
            Ok((read @ 1.., _)) => Received::Bytes {
                len: read,
                drained: read < len,
            },
            Err(Errno::AGAIN) => Received::Blocked,
            Ok(_) | Err(_) => Received::Closed,
        }
    }

    /// Whether a read would return anything but [`Received::Blocked`].
    pub(crate) fn has_input(&self) -> bool {
        let mut byte = [0; 1];
        recv(self.socket(), &mut byte, RecvFlags::PEEK).err() != Some(Errno::AGAIN)
    }

    /// Writes as many of the bytes as the socket takes. `None` if it takes none for now.
    pub(crate) fn write(&mut self, bytes: &[u8], hint: WriteHint) -> Result<Option<usize>, Errno> {
        let flags = match hint {
            WriteHint::MoreFollows => SendFlags::NOSIGNAL | SendFlags::MORE,
            WriteHint::Last => SendFlags::NOSIGNAL,
        };
        match retry_on_intr(|| send(&self.socket, bytes, flags)) {
            Err(Errno::AGAIN) => Ok(None),
            Ok(written) => {
                self.sent += written as u64;
                Ok(Some(written))
            }
            Err(error) => Err(error),
        }
    }

    /// Sends up to `len` bytes of a file from `offset` on, and moves `offset` behind them. The
    /// bytes do not pass through this process.
    ///
    /// Errors: those of the file and those of the socket alike.
    pub(crate) fn send_file(
        &mut self,
        file: BorrowedFd<'_>,
        offset: &mut u64,
        len: usize,
    ) -> Result<FileSent, Errno> {
        match retry_on_intr(|| sendfile(&self.socket, file, Some(&mut *offset), len)) {
            Ok(sent) => {
                self.sent += sent as u64;
                Ok(FileSent::Bytes(sent))
            }
            Err(Errno::AGAIN) => Ok(FileSent::Blocked),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                self.can_send_files = false;
                Ok(FileSent::Unsupported)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the socket takes bytes now, or within `wait`.
    pub(crate) fn is_writable(&self, wait: Duration) -> bool {
        let socket = self.socket();
        let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
        let wait = Timespec::try_from(wait).unwrap_or_default();
        matches!(poll(&mut fds, Some(&wait)), Ok(ready) if ready > 0)
    }

    /// Tells the client that nothing more is written.
    pub(crate) fn shutdown_write(&mut self) -> Result<(), Errno> {
        shutdown(self.socket(), Shutdown::Write)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Transport, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Transport::plain(ours.into()), theirs)
    }

    #[test]
    fn read_reports_bytes_then_blocked_then_closed() {
        let (mut transport, mut client) = pair();
        let mut buffer = [0; 4];
        assert_eq!(transport.read(&mut buffer), Received::Blocked);
        assert!(!transport.has_input());
        client.write_all(b"12345").unwrap();
        assert!(transport.has_input());
        let bytes = |len, drained| Received::Bytes { len, drained };
        assert_eq!(transport.read(&mut buffer), bytes(4, false));
        assert_eq!(transport.read(&mut buffer), bytes(1, true));
        drop(client);
        assert!(transport.has_input(), "the end is input");
        assert_eq!(transport.read(&mut buffer), Received::Closed);
    }

    #[test]
    fn write_reports_a_full_socket_as_blocked() {
        let (mut transport, mut client) = pair();
        let chunk = vec![7; 64 * 1024];
        let mut written = 0;
        while let Some(len) = transport.write(&chunk, WriteHint::MoreFollows).unwrap() {
            written += len;
        }
        assert!(!transport.is_writable(Duration::ZERO));
        let mut received = vec![0; written];
        client.read_exact(&mut received).unwrap();
        assert!(transport.is_writable(Duration::ZERO));
        transport.shutdown_write().unwrap();
        assert_eq!(client.read(&mut received).unwrap(), 0);
    }

    #[test]
    fn send_file_moves_the_offset_and_reports_the_end() {
        let (mut transport, mut client) = pair();
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        let mut offset = 4;
        let sent = transport.send_file(file.as_fd(), &mut offset, 100).unwrap();
        assert_eq!((sent, offset), (FileSent::Bytes(6), 10));
        let sent = transport.send_file(file.as_fd(), &mut offset, 100).unwrap();
        assert_eq!(sent, FileSent::Bytes(0), "the file ends here");
        let mut received = [0; 6];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"456789");
    }

    #[test]
    fn unsupported_file_turns_sendfile_off() {
        let (mut transport, _client) = pair();
        assert!(transport.can_send_files);
        let file = File::open("/proc/self/pagemap").unwrap();
        let sent = transport.send_file(file.as_fd(), &mut 0, 1).unwrap();
        assert_eq!(sent, FileSent::Unsupported);
        assert!(!transport.can_send_files);
    }
}
