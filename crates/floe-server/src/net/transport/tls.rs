//! Moves the bytes of a TLS connection between its state and its socket.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendFlags, send};

use super::{Received, WriteHint, receive, send_flags};
use crate::tls::stream::{Closed, Progress, TlsFailure, TlsStream};

/// Appends the decrypted bytes that the socket has to `input`.
pub(super) fn read(
    tls: &mut TlsStream,
    socket: BorrowedFd<'_>,
    input: &mut Vec<u8>,
    len_max: usize,
) -> Received {
    if matches!(tls.progress(), Progress::ClosedByPeer | Progress::Failed(_)) {
        return Received::Closed;
    }
    let drained = match receive(socket, &mut tls.incoming, len_max) {
        Received::Bytes { drained, .. } => drained,
        end => return end,
    };
    let before = input.len();
    tls.decrypt(input);
    let len = input.len() - before;
    if matches!(tls.progress(), Progress::Failed(TlsFailure::PlainHttp)) {
        // A client that has no room for these bytes learns from the end of the connection.
        let _: Result<usize, Errno> = send(socket, PLAIN_HTTP, SendFlags::NOSIGNAL);
    }
    let flushed = flush(tls, socket, SendFlags::NOSIGNAL);
    match tls.progress() {
        // The client may have sent a request before it closed its side.
        Progress::ClosedByPeer if len > 0 => Received::Bytes {
            len,
            drained: false,
        },
        Progress::ClosedByPeer | Progress::Failed(_) => Received::Closed,
        _ if flushed.is_err() => Received::Closed,
        _ if len == 0 && drained => Received::Blocked,
        _ => Received::Bytes { len, drained },
    }
}

/// Writes as many of the bytes as the socket takes at once. `None` if it takes none for now, or
/// not all of a part that is encrypted already. The same bytes have to be written again then.
///
/// Adds the number of encrypted bytes that the socket took to `sent`.
pub(super) fn write(
    tls: &mut TlsStream,
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    hint: WriteHint,
    sent: &mut u64,
) -> Result<Option<usize>, Errno> {
    let flags = send_flags(hint);
    if !tls.outgoing().is_empty() {
        let before = tls.outgoing().len();
        let is_sent = flush(tls, socket, flags)?;
        if tls.encrypted() > 0 {
            *sent += (before - tls.outgoing().len()) as u64;
        }
        if !is_sent {
            return Ok(None);
        }
        let taken = tls.take_encrypted();
        if taken > 0 {
            return Ok(Some(taken));
        }
    }
    let part = bytes.get(..ENCRYPT_MAX).unwrap_or(bytes);
    BUFFER.with_borrow_mut(|buffer| {
        let end = tls.encrypt(part, buffer).map_err(|Closed| Errno::PIPE)?;
        let encrypted = buffer.get(..end).unwrap_or_default();
        let taken = match retry_on_intr(|| send(socket, encrypted, flags)) {
            Err(Errno::AGAIN) => 0,
            taken => taken?,
        };
        *sent += taken as u64;
        match encrypted.get(taken..) {
            Some(rest @ [_, ..]) => {
                tls.keep_outgoing(rest, part.len());
                Ok(None)
            }
            _ => Ok(Some(part.len())),
        }
    })
}

/// Sends what is encrypted already. Returns `false` if the socket has not taken all of it.
pub(super) fn flush(
    tls: &mut TlsStream,
    socket: BorrowedFd<'_>,
    flags: SendFlags,
) -> Result<bool, Errno> {
    while !tls.outgoing().is_empty() {
        match retry_on_intr(|| send(socket, tls.outgoing(), flags)) {
            Err(Errno::AGAIN) => return Ok(false),
            sent => tls.note_sent(sent?),
        }
    }
    Ok(true)
}

thread_local! {
    /// For encrypted bytes until the socket has taken them, which it nearly always does at once.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How many bytes are encrypted for one system call: four records, and what the second-level cache
/// of a core can hold twice.
const ENCRYPT_MAX: usize = 64 * 1024;

/// The response to a client that speaks HTTP to a port for TLS.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 58\r\nConnection: close\r\n\r\n\
    this port speaks TLS; use a URL that begins with https://\n";

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use floe_testkit::{Authority, Issued, find_tool};
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

    use super::*;
    use crate::config::{CertificateFiles, TlsOptions};
    use crate::net::transport::Transport;
    use crate::tls::TlsAcceptor;

    /// A server and a client at the two ends of a stream, which are connected.
    fn pair() -> Option<(Transport, UnixStream, ClientConnection)> {
        let openssl = find_tool("openssl", "openssl")?;
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::create(&openssl, files.path(), "authority");
        let Issued { certificate, key } = authority.issue("server", "DNS:floe.test", 2);
        let options = TlsOptions {
            certificates: vec![CertificateFiles {
                certificate: certificate.into(),
                key: key.into(),
            }],
            client_ca: None,
            accepts_invalid_now: false,
        };
        let acceptor = TlsAcceptor::new(options, Arc::new(|_| {}));
        let mut roots = RootCertStore::empty();
        let trusted = CertificateDer::from_pem_file(authority.certificate()).unwrap();
        roots.add(trusted).unwrap();
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("floe.test").unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let tls = acceptor.unwrap().accept().unwrap();
        Some((Transport::tls(ours.into(), tls), theirs, client))
    }

    /// Reads until a number of bytes have come.
    fn read_all(transport: &mut Transport, input: &mut Vec<u8>, len: usize) {
        while input.len() < len {
            match transport.read(input) {
                Received::Closed => panic!("closed after {} bytes", input.len()),
                Received::Blocked => thread::yield_now(),
                Received::Bytes { .. } => {}
            }
        }
    }

    #[test]
    fn request_in_single_bytes_gets_large_response_and_close() {
        let Some((mut transport, stream, mut client)) = pair() else {
            return;
        };
        let (blocked, is_blocked) = mpsc::channel();
        let client = thread::spawn(move || {
            let mut single = SingleBytes(stream);
            let mut tls = Stream::new(&mut client, &mut single);
            tls.write_all(b"request").unwrap();
            // The server must fill the socket before the client reads.
            is_blocked.recv_timeout(Duration::from_secs(30)).unwrap();
            let mut received = Vec::new();
            // Without a close of TLS, this would be an error.
            tls.read_to_end(&mut received).unwrap();
            received
        });
        let mut input = Vec::new();
        read_all(&mut transport, &mut input, 7);
        assert_eq!(input, b"request");
        let response: Vec<u8> = (0u32..)
            .flat_map(u32::to_le_bytes)
            .take(3_000_000)
            .collect();
        let mut at = 0;
        while at < response.len() {
            match transport.write(&response[at..], WriteHint::Last).unwrap() {
                Some(written) => at += written,
                None => {
                    // Only the first message is received.
                    let _: Result<(), mpsc::SendError<()>> = blocked.send(());
                    assert!(transport.is_writable(Duration::from_secs(10)));
                }
            }
        }
        assert!(!transport.has_encrypted());
        assert!(transport.sent > response.len() as u64);
        // The end of TLS needs room in the socket.
        assert!(transport.is_writable(Duration::from_secs(10)));
        transport.close_tls();
        transport.shutdown_write().unwrap();
        assert!(client.join().unwrap() == response);
        input.clear();
        assert_eq!(transport.read(&mut input), Received::Closed);
    }

    #[test]
    fn cut_connection_is_no_clean_end_for_the_client() {
        let Some((mut transport, mut stream, mut client)) = pair() else {
            return;
        };
        let client = thread::spawn(move || {
            let mut tls = Stream::new(&mut client, &mut stream);
            tls.write_all(b"request").unwrap();
            tls.read_to_end(&mut Vec::new())
                .map_err(|error| error.kind())
        });
        read_all(&mut transport, &mut Vec::new(), 7);
        while transport
            .write(b"a part", WriteHint::Last)
            .unwrap()
            .is_none()
        {}
        drop(transport);
        assert_eq!(
            client.join().unwrap(),
            Err(std::io::ErrorKind::UnexpectedEof)
        );
    }

    #[test]
    fn request_before_close_of_the_client_is_read() {
        let Some((mut transport, mut stream, mut client)) = pair() else {
            return;
        };
        let client = thread::spawn(move || {
            let mut tls = Stream::new(&mut client, &mut stream);
            tls.write_all(b"request").unwrap();
            client.send_close_notify();
            client.write_tls(&mut stream).unwrap();
            stream
        });
        let mut input = Vec::new();
        read_all(&mut transport, &mut input, 7);
        let _stream = client.join().unwrap();
        let end = loop {
            match transport.read(&mut input) {
                Received::Blocked => thread::yield_now(),
                end => break end,
            }
        };
        assert_eq!(end, Received::Closed);
        // The other direction is still open.
        assert_eq!(
            transport.write(b"response", WriteHint::Last).unwrap(),
            Some(8)
        );
    }

    #[test]
    fn garbage_ends_the_connection_with_an_alert() {
        let Some((mut transport, mut stream, _)) = pair() else {
            return;
        };
        stream.write_all(&[0x16, 3, 1, 0, 4, 1, 0, 0, 0]).unwrap();
        assert_eq!(transport.read(&mut Vec::new()), Received::Closed);
        assert_eq!(transport.tls_failure(), Some(TlsFailure::Protocol));
        assert!(transport.write(b"response", WriteHint::Last).is_err());
        drop(transport);
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).unwrap();
        assert_eq!(alert.first(), Some(&0x15), "{alert:?}");
    }

    /// Writes one byte at a time.
    struct SingleBytes(UnixStream);

    impl std::io::Write for SingleBytes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(bytes.get(..1).unwrap_or_default())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl std::io::Read for SingleBytes {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }
}
