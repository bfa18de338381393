//! Properties of the TLS connections of floe-server, one function per fuzz target.
//!
//! A client in memory takes the place of the network. The certificate in `fuzz/tls` is for these
//! targets alone.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use floe_server::config::HEAD_LEN_MAX;
use floe_server::http::request::{Parsed, Request};
use floe_server::tls::TlsAcceptor;
use floe_server::tls::stream::{Progress, TlsStream};
use floe_server::{CertificateFiles, TlsOptions};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

/// No bytes of a client without a handshake reach the server as a request, and its replies are
/// whole records. The first byte is the length of the pieces.
pub fn check_handshake(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let (mut server, mut requests) = (accept(), Vec::new());
    for part in bytes.chunks(usize::from(*piece).max(1)) {
        server.incoming.extend_from_slice(part);
        server.decrypt(&mut requests);
        assert!(requests.is_empty(), "bytes without a handshake");
        assert!(server.incoming.len() < 2 * RECORD_LEN_MAX);
        check_records(server.outgoing());
        server.note_sent(server.outgoing().len());
        if matches!(server.progress(), Progress::Failed(_)) {
            // The connection stays as it is, whatever follows.
            server.incoming.extend_from_slice(part);
            server.decrypt(&mut requests);
            assert!(requests.is_empty() && server.encrypt(b"x", &mut Vec::new()).is_err());
            return;
        }
    }
}

/// The server gets what a client sends, whatever the pieces. If bytes change on their way, it gets
/// only what came before them.
///
/// The first byte is the length of the pieces, the second one the number of bytes that change on
/// their way. For each of these, two bytes have its place, and the rest is the request.
pub fn check_request(data: &[u8]) {
    let [piece, changes, rest @ ..] = data else {
        return;
    };
    let Some((places, request)) = rest.split_at_checked(2 * usize::from(*changes)) else {
        return;
    };
    let (mut client, mut server) = established();
    client.writer().write_all(request).expect("into memory");
    let mut wire = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut wire).expect("into memory");
    }
    let sent = wire.clone();
    for place in places.chunks_exact(2) {
        let place = usize::from(u16::from_le_bytes([place[0], place[1]]));
        if let Some(byte) = wire.get_mut(place) {
            *byte ^= 1;
        }
    }
    let mut received = Vec::new();
    for part in wire.chunks(usize::from(*piece).max(1)) {
        server.incoming.extend_from_slice(part);
        server.decrypt(&mut received);
        if matches!(server.progress(), Progress::Failed(_)) {
            break;
        }
    }
    assert!(
        request.starts_with(&received),
        "the server gets other bytes"
    );
    if wire != sent {
        return;
    }
    assert_eq!(received, request);
    assert_eq!(server.progress(), Progress::Established);
    if matches!(Request::parse(&received, HEAD_LEN_MAX), Parsed::Head(..)) {
        check_response(&mut client, &mut server);
    }
}

/// The client gets what the server sends.
fn check_response(client: &mut ClientConnection, server: &mut TlsStream) {
    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut encrypted = Vec::new();
    let len = server
        .encrypt(RESPONSE, &mut encrypted)
        .expect("it is open");
    let mut encrypted = &encrypted[..len];
    check_records(encrypted);
    let mut received = [0; RESPONSE.len()];
    while !encrypted.is_empty() {
        client.read_tls(&mut encrypted).expect("from memory");
    }
    client.process_new_packets().expect("whole records");
    client
        .reader()
        .read_exact(&mut received)
        .expect("all of it");
    assert_eq!(received, RESPONSE);
}

/// Returns both ends of a connection after the handshake.
fn established() -> (ClientConnection, TlsStream) {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.expect("the provider has all versions").dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(AnyCertificate));
        Arc::new(builder.with_no_client_auth())
    });
    let name = ServerName::try_from("floe.test").expect("a name");
    let mut client = ClientConnection::new(CONFIG.clone(), name).expect("valid settings");
    let mut server = accept();
    while client.is_handshaking() || client.wants_write() {
        while client.wants_write() {
            client.write_tls(&mut server.incoming).expect("into memory");
        }
        server.decrypt(&mut Vec::new());
        let mut replies = server.outgoing();
        let len = replies.len();
        while !replies.is_empty() {
            client.read_tls(&mut replies).expect("from memory");
            client.process_new_packets().expect("a good server");
        }
        server.note_sent(len);
    }
    (client, server)
}

fn accept() -> TlsStream {
    static ACCEPTOR: LazyLock<TlsAcceptor> = LazyLock::new(|| {
        // This file is a part of two packages.
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let mut found = above.map(|it| it.join("fuzz/tls")).filter(|it| it.exists());
        let directory = found.next().expect("it is part of the repository");
        let options = TlsOptions {
            certificates: vec![CertificateFiles {
                certificate: directory.join("certificate.pem"),
                key: directory.join("key.pem"),
            }],
            client_ca: None,
            accepts_invalid_now: true,
        };
        TlsAcceptor::new(options, Arc::new(|_| {})).expect("the committed files")
    });
    ACCEPTOR.accept().expect("valid settings")
}

/// Checks that bytes are whole records of TLS (RFC 8446, section 5.1).
fn check_records(mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_at_checked(5) {
        assert!((20..=24).contains(&head[0]) && head[1] == 3, "{head:?}");
        let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
        bytes = rest.get(len..).expect("a whole record");
    }
    assert!(bytes.is_empty(), "a part of a record");
}

/// Accepts each certificate: the client is in the same process.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The longest record in bytes, with its head and what encryption adds.
const RECORD_LEN_MAX: usize = 5 + 16 * 1024 + 256;
