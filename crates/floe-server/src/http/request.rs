//! The head of a request, parsed from its bytes.
//!
//! Only the parts that a response depends on are kept. Any bytes are a request, an incomplete
//! request, or rejected with a status; none cause a panic.

use std::borrow::Cow;
use std::fmt;

use httparse::{EMPTY_HEADER, Status as Parsing};
use percent_encoding::percent_decode_str;

use super::refusal::Refusal;
use super::request_body::Framing;

/// The most header fields that are accepted. Requests through several proxies have about 30.
const FIELDS_MAX: usize = 100;

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `PUT`, which a server with a [`Receiver`](crate::receive::Receiver) supports.
    Put,
    /// `DELETE`, which such a server supports for pins.
    Delete,
    /// Any other method.
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
    /// The body that follows. The server reads that of a `PUT` or `DELETE` that it accepts.
    pub body: Framing,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the body has an encoding of its own, such as gzip.
    pub has_encoded_body: bool,
    /// Whether the connection stays open for another request, once the body is read.
    pub keep_alive: bool,
    /// The field `Range` of a `GET` request.
    pub range: Option<&'b str>,
    /// The field `If-Range`.
    pub if_range: Option<&'b str>,
    /// The field `Host`.
    pub host: Option<&'b str>,
    /// Whether the client wants HTML, as browsers do.
    pub accepts_html: bool,
    /// Whether a proxy says that its client uses HTTPS (`X-Forwarded-Proto`).
    pub is_forwarded_https: bool,
    /// The field `If-None-Match`.
    pub if_none_match: Option<&'b str>,
    /// The field `If-Match`.
    pub if_match: Option<&'b str>,
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
    /// Returns the field `Host` if it can stand in a URL.
    pub fn checked_host(&self) -> Option<&'b str> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        let host = self.host?;
        (!host.is_empty() && host.bytes().all(is_part)).then_some(host)
    }

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
                "PUT" => Method::Put,
                "DELETE" => Method::Delete,
                _ => Method::Other,
            },
            method_text: method,
            target,
            path,
            query,
            is_http10,
            body: Framing::None,
            expects_continue: false,
            has_encoded_body: false,
            keep_alive: !is_http10,
            range: None,
            if_range: None,
            host: None,
            accepts_html: false,
            is_forwarded_https: false,
            if_none_match: None,
            if_match: None,
            authorization: None,
            accepts_zstd: false,
            real_ip: None,
            forwarded_for: Vec::new(),
            referer: None,
            user_agent: None,
        };
        let mut framing = FramingFields::default();
        for field in head.headers.iter() {
            request.set_field(field, &mut framing)?;
        }
        let FramingFields {
            hosts,
            content_length,
            transfer_encoding,
        } = framing;
        if hosts > 1 || (hosts == 0 && !is_http10) {
            return Err(Refusal::InvalidHost);
        }
        // A proxy may believe the other of the two, and so find another end of the request.
        if transfer_encoding.is_some() && content_length.is_some() {
            return Err(Refusal::AmbiguousBodyLength);
        }
        request.body = match (transfer_encoding, content_length) {
            (Some(encoding), _) if encoding.eq_ignore_ascii_case("chunked") && !is_http10 => {
                Framing::Chunked
            }
            (Some(_), _) => Framing::Unknown,
            (None, Some(len)) if len > 0 || request.method == Method::Put => Framing::Length(len),
            (None, _) => Framing::None,
        };
        // Ranges are defined for GET alone (RFC 9110, section 14.2).
        request.range = request.range.filter(|_| request.method == Method::Get);
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
        framing: &mut FramingFields<'b>,
    ) -> Result<(), Refusal> {
        // No value that the server understands has bytes beyond UTF-8.
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // Compared by length first, because most fields are none of these.
        match field.name.len() {
            6 if is("expect") => self.expects_continue = value.eq_ignore_ascii_case("100-continue"),
            4 if is("host") => {
                framing.hosts += 1;
                self.host = Some(value);
            }
            6 if is("accept") => self.accepts_html |= value.contains("text/html"),
            17 if is("x-forwarded-proto") => self.is_forwarded_https = value == "https",
            5 if is("range") => self.range = Some(value),
            7 if is("referer") => self.referer = Some(value),
            8 if is("if-range") => self.if_range = Some(value),
            8 if is("if-match") => self.if_match = Some(value),
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
            16 if is("content-encoding") => {
                self.has_encoded_body |=
                    !value.is_empty() && !value.eq_ignore_ascii_case("identity");
            }
            17 if is("transfer-encoding") => {
                // A list of codings does not end where its last one says.
                let is_first = framing.transfer_encoding.is_none();
                framing.transfer_encoding = Some(if is_first { value } else { "" });
            }
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
struct FramingFields<'b> {
    hosts: usize,
    content_length: Option<u64>,
    transfer_encoding: Option<&'b str>,
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
mod tests;
