//! Reads the header of the PROXY protocol at the beginning of a connection.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};

use crate::http::proxy_header::{HEADER_LEN_MAX, ParsedHeader, parse};

/// The header of a connection.
#[derive(Debug)]
pub(super) enum ProxyPreamble {
    /// The part of the header that has come.
    Awaited(Vec<u8>),
    /// The address of the client, if the header names one.
    Received(Option<IpAddr>),
    /// The bytes are not a header, or the connection has ended within it.
    Invalid,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderRead {
    Complete,
    /// The rest of the header has not come yet.
    Blocked,
    Closed,
}

impl ProxyPreamble {
    /// Reads from the socket, and leaves every byte there that follows the header.
    pub(super) fn read(&mut self, socket: BorrowedFd<'_>) -> HeaderRead {
        let header = match self {
            ProxyPreamble::Awaited(header) => header,
            ProxyPreamble::Received(_) => return HeaderRead::Complete,
            ProxyPreamble::Invalid => return HeaderRead::Closed,
        };
        let before = header.len();
        header.resize(HEADER_LEN_MAX, 0);
        let free = header.get_mut(before..).unwrap_or_default();
        let peeked = retry_on_intr(|| recv(socket, &mut *free, RecvFlags::PEEK));
        let len = match peeked {
            Ok((len, _)) => len,
            Err(Errno::AGAIN) => {
                header.truncate(before);
                return HeaderRead::Blocked;
            }
            Err(_) => 0,
        };
        header.truncate(before + len);
        let parsed = parse(header);
        let taken = match parsed {
            // A proxy that sends nothing only asks whether the server listens.
            _ if len == 0 && before == 0 => return HeaderRead::Closed,
            _ if len == 0 => 0,
            ParsedHeader::Incomplete => len,
            ParsedHeader::Complete { len, .. } => len.saturating_sub(before),
            ParsedHeader::Invalid => 0,
        };
        // These bytes are in the socket, so this call returns all of them.
        let free = header.get_mut(before..before + taken).unwrap_or_default();
        if taken == 0 || retry_on_intr(|| recv(socket, &mut *free, RecvFlags::empty())).is_err() {
            *self = ProxyPreamble::Invalid;
            return HeaderRead::Closed;
        }
        match parsed {
            ParsedHeader::Complete { client, .. } => {
                *self = ProxyPreamble::Received(client);
                HeaderRead::Complete
            }
            _ => HeaderRead::Blocked,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (ProxyPreamble, UnixStream, UnixStream) {
        let (ours, proxy) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ProxyPreamble::Awaited(Vec::new()), ours, proxy)
    }

    const HEADER: &[u8] = b"PROXY TCP4 198.51.100.7 192.0.2.2 4711 443\r\n";

    #[test]
    fn header_in_two_parts_is_read_and_nothing_behind_it() {
        let bytes = [HEADER, b"GET /"].concat();
        for split in 1..bytes.len() {
            let (mut preamble, ours, mut proxy) = pair();
            assert_eq!(preamble.read(ours.as_fd()), HeaderRead::Blocked);
            let (first, second) = bytes.split_at(split);
            proxy.write_all(first).unwrap();
            let read = preamble.read(ours.as_fd());
            let is_complete = split >= HEADER.len();
            assert_eq!(read == HeaderRead::Complete, is_complete, "{split}");
            proxy.write_all(second).unwrap();
            assert_eq!(preamble.read(ours.as_fd()), HeaderRead::Complete);
            let client = Some("198.51.100.7".parse().unwrap());
            assert!(matches!(preamble, ProxyPreamble::Received(found) if found == client));
            let mut rest = [0; 100];
            let (len, _) = recv(ours.as_fd(), &mut rest, RecvFlags::empty()).unwrap();
            assert_eq!(&rest[..len], b"GET /");
        }
    }

    #[test]
    fn request_is_no_header() {
        let (mut preamble, ours, mut proxy) = pair();
        proxy.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(preamble.read(ours.as_fd()), HeaderRead::Closed);
        assert!(matches!(preamble, ProxyPreamble::Invalid));
        assert_eq!(preamble.read(ours.as_fd()), HeaderRead::Closed);
    }

    #[test]
    fn end_is_invalid_only_within_a_header() {
        for (part, is_invalid) in [(&b""[..], false), (&HEADER[..9], true)] {
            let (mut preamble, ours, mut proxy) = pair();
            proxy.write_all(part).unwrap();
            assert_eq!(preamble.read(ours.as_fd()), HeaderRead::Blocked);
            drop(proxy);
            assert_eq!(preamble.read(ours.as_fd()), HeaderRead::Closed);
            assert_eq!(matches!(preamble, ProxyPreamble::Invalid), is_invalid);
        }
    }
}
