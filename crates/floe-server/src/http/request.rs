//! The head of a request, parsed from its bytes.
//!
//! Only the parts that a response depends on are kept. Any bytes are a request, an incomplete
//! request, or rejected with a status; none cause a panic.

use std::borrow::Cow;
use std::fmt;

use httparse::{EMPTY_HEADER, Status as Parsing};
use percent_encoding::percent_decode_str;

use super::refusal::Refusal;

/// The most header fields that are accepted. Requests through several proxies have about 30.
const FIELDS_MAX: usize = 100;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// Any other method. A read-only binary cache supports none.
    Other,
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// The method.
    pub method: Method,
    /// The method as it was sent, for the log.
    pub method_text: &'b str,
    /// The target as it was sent, for the log.
    pub target: &'b str,
    /// The decoded path.
    pub path: Cow<'b, str>,
    /// The query, without the question mark.
    pub query: Option<&'b str>,
    /// Whether the version is HTTP/1.0.
    pub is_http10: bool,
    /// Whether a body follows, which the server does not read.
    pub has_body: bool,
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
    /// The field `Range` of a `GET` request.
    pub range: Option<&'b str>,
    /// The field `If-Range`.
    pub if_range: Option<&'b str>,
    /// The field `If-None-Match`.
    pub if_none_match: Option<&'b str>,
    /// The field `Authorization`. Empty, and so invalid, if there are several.
    pub authorization: Option<Authorization<'b>>,
    /// Whether the client accepts zstd.
    pub accepts_zstd: bool,
    /// The client's address according to a proxy, for the log.
    pub real_ip: Option<&'b str>,
    /// The values of the fields `X-Forwarded-For`, in their order. A client may send any bytes, and
    /// a proxy appends an address.
    pub forwarded_for: Vec<&'b [u8]>,
    /// The field `Referer`, for the log.
    pub referer: Option<&'b str>,
    /// The field `User-Agent`, for the log.
    pub user_agent: Option<&'b str>,
}

/// The value of the field `Authorization`. `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Authorization<'b>(pub &'b str);

impl fmt::Debug for Authorization<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authorization(…)")
    }
}

/// The properties of a request that change the form of every response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseMode {
    /// Whether the body is not sent.
    pub head_only: bool,
    /// Whether the client only understands HTTP/1.0.
    pub is_http10: bool,
    /// Whether the client has logged in, so that no proxy may give the response to another one.
    pub is_private: bool,
}

/// The result of parsing the bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would cost an allocation for each request"
)]
pub enum Parsed<'b> {
    /// The beginning of a head.
    Incomplete,
    /// A head, and its length in bytes.
    Head(Request<'b>, usize),
    /// No valid head. The server responds with the status of the reason and closes the connection.
    Rejected(Refusal),
}

impl<'b> Request<'b> {
    /// Parses the head at the start of some bytes. A head of more than `len_max` bytes is rejected.
    pub fn parse(bytes: &'b [u8], len_max: usize) -> Parsed<'b> {
        let mut fields = [EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        match head.parse(bytes) {
            Ok(Parsing::Complete(len)) if len > len_max => too_long(bytes),
            Ok(Parsing::Complete(len)) => match Request::read(&head) {
                Ok(request) => Parsed::Head(request, len),
                Err(refusal) => Parsed::Rejected(refusal),
            },
            Ok(Parsing::Partial) if bytes.len() >= len_max => too_long(bytes),
            Ok(Parsing::Partial) => Parsed::Incomplete,
            Err(httparse::Error::TooManyHeaders) => Parsed::Rejected(Refusal::TooManyFields),
            Err(_) => Parsed::Rejected(Refusal::MalformedHead),
        }
    }

    fn read(head: &httparse::Request<'_, 'b>) -> Result<Request<'b>, Refusal> {
        let method = head.method.ok_or(Refusal::MalformedHead)?;
        let target = head.path.ok_or(Refusal::MalformedHead)?;
        let is_http10 = head.version == Some(0);
        let (path, query) = split_target(target)?;
        let mut request = Request {
            method: match method {
                "GET" => Method::Get,
                "HEAD" => Method::Head,
                _ => Method::Other,
            },
            method_text: method,
            target,
            path,
            query,
            is_http10,
            has_body: false,
            keep_alive: !is_http10,
            range: None,
            if_range: None,
            if_none_match: None,
            authorization: None,
            accepts_zstd: false,
            real_ip: None,
            forwarded_for: Vec::new(),
            referer: None,
            user_agent: None,
        };
        let mut framing = Framing::default();
        for field in head.headers.iter() {
            request.set_field(field, &mut framing)?;
        }
        let Framing {
            hosts,
            content_length,
            has_transfer_encoding,
        } = framing;
        if hosts > 1 || (hosts == 0 && !is_http10) {
            return Err(Refusal::InvalidHost);
        }
        // A proxy may believe the other of the two, and so find another end of the request.
        if has_transfer_encoding && content_length.is_some() {
            return Err(Refusal::AmbiguousBodyLength);
        }
        request.has_body = has_transfer_encoding || content_length.is_some_and(|len| len > 0);
        // Ranges are defined for GET alone (RFC 9110, section 14.2).
        request.range = request.range.filter(|_| request.method == Method::Get);
        // The server reads no body. Its bytes must not be parsed as the next request.
        request.keep_alive &= !request.has_body;
        let forwarded_for = request.forwarded_for.last();
        let first =
            forwarded_for.and_then(|value| std::str::from_utf8(value).ok()?.split(',').next());
        request.real_ip = request.real_ip.or(first.map(str::trim));
        Ok(request)
    }

    /// Notes a header field that the server understands.
    fn set_field(
        &mut self,
        field: &httparse::Header<'b>,
        framing: &mut Framing,
    ) -> Result<(), Refusal> {
        // No value that the server understands has bytes beyond UTF-8.
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // Compared by length first, because most fields are none of these.
        match field.name.len() {
            4 if is("host") => framing.hosts += 1,
            5 if is("range") => self.range = Some(value),
            7 if is("referer") => self.referer = Some(value),
            8 if is("if-range") => self.if_range = Some(value),
            9 if is("x-real-ip") => self.real_ip = Some(value),
            10 if is("connection") => {
                for option in value.split(',').map(str::trim) {
                    if option.eq_ignore_ascii_case("close") {
                        self.keep_alive = false;
                    } else if self.is_http10 && option.eq_ignore_ascii_case("keep-alive") {
                        self.keep_alive = true;
                    }
                }
            }
            10 if is("user-agent") => self.user_agent = Some(value),
            13 if is("authorization") => {
                // A proxy may believe another one of several.
                let is_first = self.authorization.is_none();
                self.authorization = Some(Authorization(if is_first { value } else { "" }));
            }
            13 if is("if-none-match") => self.if_none_match = Some(value),
            14 if is("content-length") => {
                let length = body_length(field.value)?;
                if framing.content_length.replace(length).is_some() {
                    return Err(Refusal::AmbiguousBodyLength);
                }
            }
            15 if is("accept-encoding") => self.accepts_zstd |= accepts_zstd(value),
            15 if is("x-forwarded-for") => self.forwarded_for.push(field.value),
            17 if is("transfer-encoding") => framing.has_transfer_encoding = true,
            _ => {}
        }
        Ok(())
    }

    /// Returns what every response to this request depends on.
    pub fn mode(&self) -> ResponseMode {
        ResponseMode {
            head_only: self.method == Method::Head,
            is_http10: self.is_http10,
            is_private: false,
        }
    }

    /// Returns the value of a parameter in the query, without decoding it.
    pub fn parameter(&self, name: &str) -> Option<&'b str> {
        let pairs = self.query?.split('&');
        pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find_map(|(key, value)| (key == name).then_some(value))
    }
}

/// The fields of a head that tell where the request ends, and for which host it is.
#[derive(Default)]
struct Framing {
    hosts: usize,
    content_length: Option<u64>,
    has_transfer_encoding: bool,
}

/// Parses `Content-Length`: digits, and nothing else (RFC 9110, section 8.6).
fn body_length(value: &[u8]) -> Result<u64, Refusal> {
    let digits = value.trim_ascii();
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::InvalidBodyLength);
    }
    let number = std::str::from_utf8(digits)
        .ok()
        .and_then(|it| it.parse().ok());
    number.ok_or(Refusal::InvalidBodyLength)
}

/// Rejects a head because its first line is too long, or else because its fields are.
fn too_long<'b>(bytes: &[u8]) -> Parsed<'b> {
    if bytes.contains(&b'\n') {
        Parsed::Rejected(Refusal::HeadTooLong)
    } else {
        Parsed::Rejected(Refusal::RequestLineTooLong)
    }
}

/// Splits a target into path and query. A proxy may send a whole URL as the target.
fn split_target(target: &str) -> Result<(Cow<'_, str>, Option<&str>), Refusal> {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            let end = rest.find(['/', '?']);
            end.and_then(|at| rest.get(at..)).unwrap_or("/")
        }
        _ => target,
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = match path {
        "" => "/",
        path => path,
    };
    let path = percent_decode_str(path).decode_utf8();
    let path = path.map_err(|_| Refusal::InvalidTarget)?;
    Ok((path, query))
}

/// Whether a text is the scheme of a URL (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.bytes().all(is_part) && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Whether `Accept-Encoding` lists zstd with a weight other than zero.
fn accepts_zstd(list: &str) -> bool {
    list.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_zstd = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("zstd"));
        let is_refused = parts.any(|parameter| {
            let weight = parameter
                .strip_prefix("q=")
                .or(parameter.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.parse() == Ok(0.0))
        });
        is_zstd && !is_refused
    })
}

/// Whether a head may end in these bytes, or is longer than `len_max`. The first `scanned` bytes
/// have been checked before.
///
/// Without this check, a client that sends byte by byte would make the server parse the head from
/// its beginning for each byte.
pub fn may_be_complete(bytes: &[u8], scanned: usize, len_max: usize) -> bool {
    let start = scanned.saturating_sub(3);
    let fresh = bytes.get(start..).unwrap_or_default();
    bytes.len() >= len_max
        || fresh.windows(2).any(|pair| pair == b"\n\n")
        || fresh.windows(3).any(|triple| triple == b"\n\r\n")
}

#[cfg(test)]
mod tests {
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
        assert!(!head("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n").keep_alive);
        assert!(
            !head("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").keep_alive
        );
        assert!(head("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").keep_alive);
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
        assert!(head(&request("Content-Length: 18446744073709551615")).has_body);
        assert!(head(&request("Transfer-Encoding: chunked")).has_body);
        assert!(!head(&request("Content-Length:\t 0 ")).has_body);
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
}
