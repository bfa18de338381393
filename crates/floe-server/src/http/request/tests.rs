//! Tests of the parser of heads.

use proptest::prelude::*;

use super::*;
use crate::config::HEAD_LEN_MAX;

fn head(text: &str) -> Request<'_> {
    match Request::parse(text.as_bytes(), HEAD_LEN_MAX) {
        Parsed::Head(request, len) => {
            assert_eq!(len, text.len());
            request
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn refused(text: &str) -> Refusal {
    match Request::parse(text.as_bytes(), HEAD_LEN_MAX) {
        Parsed::Rejected(refusal) => refusal,
        other => panic!("{text:?}: {other:?}"),
    }
}

#[test]
fn request_path_query_and_fields_are_parsed() {
    let request = head(
        "GET /nar/a%2bb.nar?x&hash=abc HTTP/1.1\r\nHost: h\r\nRANGE: bytes=0-\r\n\
         Accept-Encoding: deflate, gzip, br, zstd\r\nX-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n\r\n",
    );
    assert_eq!(request.path, "/nar/a+b.nar");
    assert_eq!(request.parameter("hash"), Some("abc"));
    assert_eq!(request.parameter("x"), Some(""));
    assert_eq!(request.parameter("y"), None);
    assert_eq!(request.range, Some("bytes=0-"));
    assert_eq!(request.real_ip, Some("1.2.3.4"));
    assert_eq!(request.forwarded_for, [b"1.2.3.4, 5.6.7.8"]);
    assert!(request.accepts_zstd && request.keep_alive);
    assert_eq!(
        head("HEAD / HTTP/1.0\r\nRange: bytes=0-\r\n\r\n").range,
        None
    );
}

#[test]
fn credentials_are_hidden_and_invalid_if_repeated() {
    let one = head("GET / HTTP/1.0\r\nAuthorization: Bearer secret\r\n\r\n");
    assert_eq!(one.authorization, Some(Authorization("Bearer secret")));
    assert!(!format!("{one:?}").contains("secret"));
    let two = "GET / HTTP/1.0\r\nAuthorization: a\r\nauthorization: b\r\n\r\n";
    assert_eq!(head(two).authorization, Some(Authorization("")));
}

#[test]
fn http10_and_closing_clients_are_not_kept_alive() {
    assert!(!head("GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert!(head("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
    assert!(!head("GET / HTTP/1.1\r\nHost: h\r\nConnection: te, close\r\n\r\n").keep_alive);
}

#[test]
fn body_and_its_coding_are_parsed() {
    let request = |method: &str, fields: &str| {
        let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        let request = head(&text);
        (
            request.body,
            request.expects_continue,
            request.has_encoded_body,
        )
    };
    let length = |len| (Framing::Length(len), false, false);
    let none = (Framing::None, false, false);
    let (chunked, unknown) = (Framing::Chunked, Framing::Unknown);
    for (method, fields, expected) in [
        ("GET", "A: b", none),
        ("GET", "Content-Length:\t 0 ", none),
        ("PUT", "Content-Length: 0", length(0)),
        (
            "GET",
            "Content-Length: 18446744073709551615",
            length(u64::MAX),
        ),
        ("PUT", "Transfer-Encoding: CHUNKED", (chunked, false, false)),
        (
            "PUT",
            "Transfer-Encoding: gzip, chunked",
            (unknown, false, false),
        ),
        (
            "PUT",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            (unknown, false, false),
        ),
        (
            "PUT",
            "Content-Length: 5\r\nExpect: 100-Continue",
            (Framing::Length(5), true, false),
        ),
        (
            "PUT",
            "Content-Length: 5\r\nContent-Encoding: gzip",
            (Framing::Length(5), false, true),
        ),
        (
            "PUT",
            "Content-Length: 5\r\nContent-Encoding: identity",
            length(5),
        ),
    ] {
        assert_eq!(request(method, fields), expected, "{method} {fields}");
    }
    let old = head("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old.body, Framing::Unknown);
}

#[test]
fn absolute_url_is_accepted_as_a_target() {
    assert_eq!(
        head("GET http://h/a?b HTTP/1.1\r\nHost: h\r\n\r\n").path,
        "/a"
    );
    assert_eq!(head("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n").path, "/");
    let query = head("GET http://h?/health HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((&*query.path, query.query), ("/", Some("/health")));
    for target in ["?://h/health", "a?b://h/health", "1://h/health"] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_ne!(head(&text).path, "/health", "{target}");
    }
    assert_eq!(
        head("GET /a://b HTTP/1.1\r\nHost: h\r\n\r\n").path,
        "/a://b"
    );
}

#[test]
fn malformed_or_long_heads_are_rejected() {
    let two_hosts = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), Refusal::InvalidHost);
    assert_eq!(refused(two_hosts), Refusal::InvalidHost);
    assert_eq!(refused("\x16\x03\x01 TLS\r\n\r\n"), Refusal::MalformedHead);
    let not_utf8 = "GET /%ff HTTP/1.0\r\n\r\n";
    assert_eq!(refused(not_utf8), Refusal::InvalidTarget);
    let long = "x".repeat(HEAD_LEN_MAX);
    let long_line = format!("GET /{long}");
    assert_eq!(refused(&long_line), Refusal::RequestLineTooLong);
    let long_field = format!("GET / HTTP/1.0\r\nA: {long}");
    assert_eq!(refused(&long_field), Refusal::HeadTooLong);
    let many = "A: b\r\n".repeat(FIELDS_MAX + 1);
    let many = format!("GET / HTTP/1.0\r\n{many}\r\n");
    assert_eq!(refused(&many), Refusal::TooManyFields);
}

#[test]
fn invalid_or_contradictory_body_length_is_rejected() {
    let request = |fields: &str| format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
    for value in [
        "",
        "-1",
        "+5",
        "0x5",
        "5 5",
        "5, 5",
        "five",
        "18446744073709551616",
    ] {
        let request = request(&format!("Content-Length: {value}"));
        assert_eq!(refused(&request), Refusal::InvalidBodyLength);
    }
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nCONTENT-LENGTH: 5",
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
    ] {
        let refusal = refused(&request(fields));
        assert_eq!(refusal, Refusal::AmbiguousBodyLength, "{fields}");
    }
}

#[test]
fn zstd_is_accepted_unless_its_weight_is_zero() {
    for (list, accepted) in [
        ("zstd", true),
        ("gzip, ZSTD;q=0.5", true),
        ("zstd;q=0", false),
        ("zstd; q=0.000", false),
        ("gzip", false),
        ("*", false),
        ("", false),
    ] {
        assert_eq!(accepts_zstd(list), accepted, "{list}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
        let _: Parsed<'_> = Request::parse(&bytes, HEAD_LEN_MAX);
    }

    #[test]
    fn split_head_is_complete_only_with_its_last_byte(split in 0usize..40) {
        let text = b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
        let split = split.min(text.len() - 1);
        prop_assert!(!may_be_complete(&text[..split], 0, HEAD_LEN_MAX));
        prop_assert!(may_be_complete(text, split, HEAD_LEN_MAX));
    }
}
