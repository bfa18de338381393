//! Tests of compressed connections.

use zstd::stream::raw::CParameter;

use super::*;

/// Returns a session that waits for requests.
fn server_after_greeting() -> ServerSession {
    let info = ServerInfo::default();
    let mut server = ServerSession::new(StoreDir::default(), info, Version::OFFERED);
    let mut greeting = Vec::new();
    ClientSession::new(Protocol::Worker, StoreDir::default(), &mut greeting);
    feed(&mut server, &greeting);
    let opened = server.next_event(&mut Vec::new());
    assert!(matches!(opened, Ok(Some(ServerEvent::Opened(_)))));
    server
}

fn feed(server: &mut ServerSession, bytes: &[u8]) {
    server.space()[..bytes.len()].copy_from_slice(bytes);
    server.fill(bytes.len());
}

fn compress_request() -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(Request::Compress.write(&mut bytes, &StoreDir::default()));
    bytes
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = compressor(Vec::new()).unwrap();
    compressor.write_all(bytes).unwrap();
    compressor.flush().unwrap();
    compressor.get_ref().clone()
}

#[test]
fn invalid_compressed_bytes_are_refused() {
    let window_of_16_mib = CParameter::WindowLog(24);
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_parameter(window_of_16_mib).unwrap();
    encoder.write_all(&[7; 100]).unwrap();
    encoder.flush().unwrap();
    let again = compressed(&compress_request());
    for bytes in [
        b"no frame of zstd at all".to_vec(),
        encoder.get_ref().clone(),
        again,
    ] {
        let mut server = server_after_greeting();
        feed(&mut server, &[compress_request(), bytes].concat());
        let request = server.next_event(&mut Vec::new()).unwrap();
        assert_eq!(request, Some(ServerEvent::Request(Request::Compress)));
        let fault = server.next_event(&mut Vec::new()).unwrap_err();
        assert!(matches!(fault, WireError::Compression { .. }), "{fault}");
    }
}

#[test]
fn compressed_bytes_are_passed_on_in_parts() {
    let mut server = server_after_greeting();
    let mut message = Vec::new();
    let request = Request::AddToStore {
        name: "zeros".into(),
        method: "text:sha256".into(),
        references: [].into(),
        repair: false,
    };
    assert!(request.write(&mut message, &StoreDir::default()));
    let len = 64 * 1024 * 1024;
    message.extend_from_slice(&crate::frames::header(len));
    message.resize(message.len() + len, 0);
    message.extend_from_slice(&crate::frames::END);
    let bytes = [compress_request(), compressed(&message)].concat();
    assert!(bytes.len() < 64 * 1024, "{}", bytes.len());
    feed(&mut server, &bytes);
    let (mut total, mut largest) = (0, 0);
    while let Some(event) = server.next_event(&mut Vec::new()).unwrap() {
        if let ServerEvent::Data(data) = event {
            total += data.len();
            largest = largest.max(data.len());
        }
    }
    assert_eq!(total, len);
    assert!(largest <= 256 * 1024, "{largest} bytes at once");
    assert!(server.is_idle());
}
