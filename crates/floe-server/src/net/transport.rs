//! The byte stream to one client.
//!
//! Every read, write and `sendfile` of a connection goes through [`Transport`], so only this file
//! knows what the bytes on the socket look like. If [`Transport::can_send_files`] is false, files
//! pass through the write buffer: with TLS, and on file systems without `sendfile`.

mod proxy_header;
mod tls;

use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::sendfile;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::tls::stream::{Progress, TlsFailure, TlsStream};
use proxy_header::{HeaderRead, ProxyPreamble};

/// The byte stream to one client, over a non-blocking socket.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: OwnedFd,
    tls: Option<Box<TlsStream>>,
    /// The header that a trusted proxy sends before all other bytes.
    preamble: Option<Box<ProxyPreamble>>,
    /// Whether [`Transport::send_file`] may be called. Cleared by the first file that `sendfile`
    /// does not support. The files of a store are on one file system, so the next file would not
    /// work either.
    pub(crate) can_send_files: bool,
    /// How many bytes of responses the socket has taken. With TLS these are encrypted bytes.
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
            tls: None,
            preamble: None,
            can_send_files: true,
            sent: 0,
        }
    }

    pub(crate) fn tls(socket: OwnedFd, tls: TlsStream) -> Transport {
        Transport {
            tls: Some(Box::new(tls)),
            // The kernel would send the files without encryption.
            can_send_files: false,
            ..Transport::plain(socket)
        }
    }

    /// Expects a header of the PROXY protocol before all other bytes.
    pub(crate) fn after_proxy_header(self) -> Transport {
        Transport {
            preamble: Some(Box::new(ProxyPreamble::Awaited(Vec::new()))),
            ..self
        }
    }

    /// The socket, to wait for its events.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Appends what the client has sent to `input`: up to [`READ_LEN`] bytes of the socket.
    pub(crate) fn read(&mut self, input: &mut Vec<u8>) -> Received {
        self.read_up_to(input, READ_LEN)
    }

    /// Appends what the client has sent to `input`: up to `len` bytes of the socket.
    pub(crate) fn read_up_to(&mut self, input: &mut Vec<u8>, len: usize) -> Received {
        if let Some(preamble) = &mut self.preamble {
            return match preamble.read(self.socket.as_fd()) {
                HeaderRead::Complete => Received::Bytes {
                    len: 0,
                    drained: false,
                },
                HeaderRead::Blocked => Received::Blocked,
                HeaderRead::Closed => Received::Closed,
            };
        }
        match &mut self.tls {
            None => receive(self.socket.as_fd(), input, len),
            Some(tls) => tls::read(tls, self.socket.as_fd(), input, len),
        }
    }

    /// Whether a read would return anything but [`Received::Blocked`].
    pub(crate) fn has_input(&self) -> bool {
        let mut byte = [0; 1];
        recv(self.socket(), &mut byte, RecvFlags::PEEK).err() != Some(Errno::AGAIN)
    }

    /// Writes as many of the bytes as the socket takes. `None` if it takes none for now. Then the
    /// next call must begin with the same bytes, because TLS may have encrypted them already.
    pub(crate) fn write(&mut self, bytes: &[u8], hint: WriteHint) -> Result<Option<usize>, Errno> {
        if let Some(tls) = &mut self.tls {
            return tls::write(tls, self.socket.as_fd(), bytes, hint, &mut self.sent);
        }
        match retry_on_intr(|| send(&self.socket, bytes, send_flags(hint))) {
            Err(Errno::AGAIN) => Ok(None),
            Ok(written) => {
                self.sent += written as u64;
                Ok(Some(written))
            }
            Err(error) => Err(error),
        }
    }

    /// Sends messages of the TLS handshake that the socket did not take before.
    pub(crate) fn flush_handshake(&mut self) -> Result<(), Errno> {
        match &mut self.tls {
            Some(tls) if tls.encrypted() == 0 => {
                tls::flush(tls, self.socket.as_fd(), SendFlags::NOSIGNAL).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Whether the client that a proxy has named was not taken yet. Until then, nothing is read.
    pub(crate) fn has_proxied_client(&self) -> bool {
        matches!(self.preamble.as_deref(), Some(ProxyPreamble::Received(_)))
    }

    /// Takes out the address of the client that a proxy has named. The inner `None` stands for a
    /// proxy that has connected for itself.
    pub(crate) fn take_proxied_client(&mut self) -> Option<Option<IpAddr>> {
        match self.preamble.take().map(|preamble| *preamble) {
            Some(ProxyPreamble::Received(client)) => Some(client),
            other => {
                self.preamble = other.map(Box::new);
                None
            }
        }
    }

    /// Whether a part of the header of a proxy has come.
    pub(crate) fn has_part_of_proxy_header(&self) -> bool {
        matches!(self.preamble.as_deref(), Some(ProxyPreamble::Awaited(part)) if !part.is_empty())
    }

    /// Whether a proxy has sent other bytes than a header.
    pub(crate) fn has_invalid_proxy_header(&self) -> bool {
        matches!(self.preamble.as_deref(), Some(ProxyPreamble::Invalid))
    }

    /// Whether bytes of a response are encrypted that the socket has not taken.
    pub(crate) fn has_encrypted(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.encrypted() > 0)
    }

    /// Whether the TLS handshake has begun and is not complete.
    pub(crate) fn is_in_handshake(&self) -> bool {
        let progress = self.tls.as_ref().map(|tls| tls.progress());
        progress == Some(Progress::Handshake)
    }

    /// Returns the reason if TLS has failed.
    pub(crate) fn tls_failure(&self) -> Option<TlsFailure> {
        match self.tls.as_ref()?.progress() {
            Progress::Failed(failure) => Some(failure),
            _ => None,
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
        self.is_ready(PollFlags::OUT, wait)
    }

    /// Whether the socket has bytes now, or within `wait`.
    pub(crate) fn is_readable(&self, wait: Duration) -> bool {
        self.is_ready(PollFlags::IN, wait)
    }

    fn is_ready(&self, flags: PollFlags, wait: Duration) -> bool {
        let socket = self.socket();
        let mut fds = [PollFd::new(&socket, flags)];
        let wait = Timespec::try_from(wait).unwrap_or_default();
        matches!(poll(&mut fds, Some(&wait)), Ok(ready) if ready > 0)
    }

    /// Tells a client that uses TLS that nothing more is written. A client that has no room for
    /// this learns from the end of the connection.
    pub(crate) fn close_tls(&mut self) {
        if let Some(tls) = &mut self.tls
            && tls.encrypt_close().is_ok()
        {
            let _: Result<bool, Errno> = tls::flush(tls, self.socket.as_fd(), SendFlags::NOSIGNAL);
        }
    }

    /// Tells the client that nothing more is written.
    pub(crate) fn shutdown_write(&mut self) -> Result<(), Errno> {
        shutdown(self.socket(), Shutdown::Write)
    }
}

/// Appends what the socket has to `buffer`, up to `len_max` bytes.
fn receive(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>, len_max: usize) -> Received {
    let before = buffer.len();
    buffer.resize(before + len_max, 0);
    let free = buffer.get_mut(before..).unwrap_or_default();
    let received = match retry_on_intr(|| recv(socket, &mut *free, RecvFlags::empty())) {
        Ok((len @ 1.., _)) => Received::Bytes {
            len,
            drained: len < len_max,
        },
        Err(Errno::AGAIN) => Received::Blocked,
        Ok(_) | Err(_) => Received::Closed,
    };
    let len = match received {
        Received::Bytes { len, .. } => len,
        Received::Blocked | Received::Closed => 0,
    };
    buffer.truncate(before + len);
    received
}

fn send_flags(hint: WriteHint) -> SendFlags {
    match hint {
        WriteHint::MoreFollows => SendFlags::NOSIGNAL | SendFlags::MORE,
        WriteHint::Last => SendFlags::NOSIGNAL,
    }
}

/// How much is read at once. Heads have a few hundred bytes.
pub(crate) const READ_LEN: usize = 4 * 1024;

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
        let mut buffer = Vec::new();
        assert_eq!(transport.read(&mut buffer), Received::Blocked);
        assert!(!transport.has_input());
        client.write_all(&[7; READ_LEN + 1]).unwrap();
        assert!(transport.has_input());
        let bytes = |len, drained| Received::Bytes { len, drained };
        assert_eq!(transport.read(&mut buffer), bytes(READ_LEN, false));
        assert_eq!(transport.read(&mut buffer), bytes(1, true));
        drop(client);
        assert!(transport.has_input(), "the end is input");
        assert_eq!(transport.read(&mut buffer), Received::Closed);
        assert_eq!(buffer, [7; READ_LEN + 1]);
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
