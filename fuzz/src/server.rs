//! Properties of floe-server that hold for any bytes of a client, one function per fuzz target.
//!
//! The fuzz targets call these functions with the bytes that libFuzzer finds. The tests of
//! floe-server call them with the committed corpus.

use floe_server::auth::LoginFile;
use floe_server::config::HEAD_LEN_MAX;
use floe_server::http::proxy_header::{self, ParsedHeader};
use floe_server::http::range::{self, RANGES_MAX, Ranges};
use floe_server::http::request::{Method, Parsed, Request, may_be_complete};
use floe_server::http::request_body::{BodyPart, BodyReader, Framing, InvalidChunk};
use floe_server::http::route::{Route, route};

/// Parsing a head does not depend on the bytes behind it, and every head has a route.
pub fn check_http_request(data: &[u8]) {
    let Parsed::Head(request, len) = Request::parse(data, HEAD_LEN_MAX) else {
        return;
    };
    assert!(0 < len && len <= data.len() && len <= HEAD_LEN_MAX);
    let head = &data[..len];
    assert_eq!(
        Request::parse(head, HEAD_LEN_MAX),
        Parsed::Head(request.clone(), len),
        "the bytes behind the head make a difference"
    );
    assert!(may_be_complete(head, 0, HEAD_LEN_MAX) && may_be_complete(head, len - 1, HEAD_LEN_MAX));
    for cut in 0..len.min(CUTS_MAX) {
        // The beginning of a head is never parsed as a whole head.
        assert!(!matches!(
            Request::parse(&head[..cut], HEAD_LEN_MAX),
            Parsed::Head(..)
        ));
    }
    assert!(request.method == Method::Get || request.range.is_none());
    check_route(&request);
}

fn check_route(request: &Request<'_>) {
    let plain = route(request, "");
    let below = route(request, "/cache");
    if !request.path.starts_with("/cache") {
        assert_eq!(below, Route::Unknown);
    }
    if let Route::NarInfo { hash, .. } | Route::Listing(hash) = plain {
        assert!(request.path.contains(hash.as_str()));
    }
}

/// The contents of a body and its end do not depend on the pieces in which it arrives. The first
/// byte is the length of the pieces.
pub fn check_request_body(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else {
        return;
    };
    let whole = read_body(bytes, bytes.len());
    assert_eq!(read_body(bytes, usize::from(*piece)), whole);
    if let Ok(Some((contents, rest))) = whole {
        assert!(contents.len() + rest < bytes.len(), "chunks have lines");
    }
}

/// Returns the contents of a body and the number of bytes behind it; `None` if it has no end.
fn read_body(bytes: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, InvalidChunk> {
    let mut reader = BodyReader::new(Framing::Chunked);
    let (mut buffer, mut contents, mut arrived) = (Vec::new(), Vec::new(), 0);
    loop {
        let mut input = buffer.as_slice();
        let part = reader.next(&mut input);
        let left = input.len();
        match part? {
            BodyPart::Bytes(part) => contents.extend_from_slice(part),
            BodyPart::End => return Ok(Some((contents, left + bytes.len() - arrived))),
            BodyPart::Incomplete if arrived == bytes.len() => return Ok(None),
            BodyPart::Incomplete => {
                let used = buffer.len() - left;
                buffer.drain(..used);
                let end = bytes.len().min(arrived + piece.max(1));
                buffer.extend_from_slice(&bytes[arrived..end]);
                arrived = end;
                continue;
            }
        }
        let used = buffer.len() - left;
        buffer.drain(..used);
    }
}

/// Ranges stay within the length, and their sum is not larger than the length.
pub fn check_http_range(data: &[u8]) {
    let Some((len, field)) = data.split_first_chunk() else {
        return;
    };
    let Ok(field) = std::str::from_utf8(field) else {
        return;
    };
    for len in [0, 1, 112, u64::from_le_bytes(*len), u64::MAX] {
        let Ranges::Parts(parts) = range::parse(Some(field), len) else {
            continue;
        };
        assert!(!parts.is_empty() && parts.len() <= RANGES_MAX);
        for part in &parts {
            assert!(part.start < part.end && part.end <= len);
        }
        let total: u128 = parts
            .iter()
            .map(|part| u128::from(part.end - part.start))
            .sum();
        assert!(total <= u128::from(len));
        let printed: Vec<String> = parts
            .iter()
            .map(|part| format!("{}-{}", part.start, part.end - 1))
            .collect();
        let again = range::parse(Some(&format!("bytes={}", printed.join(","))), len);
        assert_eq!(again, Ranges::Parts(parts));
    }
}

/// A login file that parses prints to one with the same logins.
pub fn check_login_file(data: &[u8]) {
    let Ok(file) = LoginFile::parse(data) else {
        return;
    };
    let printed = file.to_string();
    let again = LoginFile::parse(printed.as_bytes());
    assert_eq!(again.as_ref(), Ok(&file));
    for login in file.logins() {
        assert!(!login.name().contains(':') && !login.scopes.is_empty());
        assert_eq!(file.find(login.name()), Some(login));
    }
}

/// A header of the PROXY protocol ends where its last byte is, whatever follows.
pub fn check_proxy_header(data: &[u8]) {
    let complete = proxy_header::parse(data);
    let ParsedHeader::Complete { len, .. } = complete else {
        return;
    };
    let header = &data[..len];
    assert_eq!(proxy_header::parse(header), complete);
    for cut in 0..len.min(CUTS_MAX) {
        assert_eq!(
            proxy_header::parse(&header[..cut]),
            ParsedHeader::Incomplete
        );
    }
}

/// Prefixes up to this length are parsed. The work grows with its square.
const CUTS_MAX: usize = 512;
