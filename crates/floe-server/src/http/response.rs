//! Responses, and their heads as bytes.

use std::io::Write as _;
use std::sync::Arc;

use super::refusal::Refusal;
use super::request::ResponseMode;
use crate::body::text::Text;
use crate::body::{Body, Piece};
use crate::receive::{ReceiveError, ReceiveErrorKind};

/// The response to one request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header fields, each with its line end. Those that every response has are not among them.
    pub(crate) fields: Text,
    /// The length of the body, which is not sent for `HEAD`. `None` if it is not known.
    pub(crate) length: Option<u64>,
    pub(crate) content: Content,
    /// Whether the contents were in a cache of the server, where that is known.
    pub(crate) cache: Option<(CacheKind, CacheUse)>,
    /// The reason, if the server refuses the request.
    pub(crate) refusal: Option<Refusal>,
}

/// The caches of the server whose use is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheKind {
    NarInfo,
    /// Whole NARs in memory.
    Nar,
    CompressedNar,
}

impl CacheKind {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [CacheKind; 3] =
        [CacheKind::NarInfo, CacheKind::Nar, CacheKind::CompressedNar];
}

/// Whether the contents of a response were in a cache of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheUse {
    Hit,
    Miss,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum Content {
    Text(Text),
    /// The NAR of a small path.
    Bytes(Arc<[u8]>),
    /// Pieces that a worker reads while it sends them.
    Body(Body),
}

impl Response {
    pub(crate) fn text(status: u16, fields: impl Into<Text>, body: impl Into<Text>) -> Response {
        let body = body.into();
        Response {
            status,
            fields: fields.into(),
            length: Some(body.as_str().len() as u64),
            content: Content::Text(body),
            cache: None,
            refusal: None,
        }
    }

    /// 200 with a body that is read while it is sent.
    pub(crate) fn streamed(
        fields: impl Into<Text>,
        length: Option<u64>,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> Response {
        Response {
            length,
            content: Content::Body(Body::new(pieces)),
            ..Response::text(200, fields, "")
        }
    }

    /// 200 to a `HEAD` request.
    pub(crate) fn head(fields: impl Into<Text>, length: Option<u64>) -> Response {
        Response {
            length,
            ..Response::text(200, fields, "")
        }
    }

    /// 308 to a URL. The URL must have no line end.
    pub(crate) fn redirect(url: &str) -> Response {
        let fields = format!("{NOT_STORED}Location: {url}\r\n");
        Response::text(308, fields, "use HTTPS\n")
    }

    /// 404. No client may store it, since the path may become valid at any time.
    pub(crate) fn not_found(why: &'static str) -> Response {
        Response::text(404, NOT_STORED, why)
    }

    /// 500. The reason is for the operator, not for the client.
    pub(crate) fn internal_error() -> Response {
        Response::text(500, NOT_STORED, "internal error\n")
    }

    /// The response to a request that the server refuses.
    pub(crate) fn refused(refusal: Refusal) -> Response {
        let (fields, why) = match refusal {
            Refusal::MalformedHead
            | Refusal::InvalidTarget
            | Refusal::InvalidHost
            | Refusal::InvalidBodyLength
            | Refusal::AmbiguousBodyLength => (NOT_STORED, "bad request\n"),
            Refusal::LoginRequired => (LOGIN, "login required\n"),
            Refusal::LoginFailed => (LOGIN, "wrong login\n"),
            Refusal::LoginExpired => (LOGIN, "the login has expired\n"),
            Refusal::MissingScope => (NOT_STORED, "the login does not allow this\n"),
            Refusal::TooManyLogins => (RETRY_LOGIN, "too many wrong logins\n"),
            Refusal::LoginQueueFull => (RETRY_LATER, "too many logins\n"),
            Refusal::MethodNotAllowed => (NOT_ALLOWED, "method not allowed\n"),
            Refusal::NotReceived => (NOT_STORED, "the server receives no such object\n"),
            Refusal::UnsupportedBody => (NOT_STORED, "the coding of the body is not supported\n"),
            Refusal::PlainHttp => (NOT_STORED, "this port speaks TLS\n"),
            Refusal::ProxyHeader => (NOT_STORED, "no header of a proxy\n"),
            Refusal::ClientCertificate | Refusal::TlsProtocol => (NOT_STORED, "TLS failure\n"),
            Refusal::HeadTimeout | Refusal::TlsTimeout => (NOT_STORED, "request timeout\n"),
            Refusal::RequestLineTooLong => (NOT_STORED, "request line too long\n"),
            Refusal::HeadTooLong | Refusal::TooManyFields => {
                (NOT_STORED, "request header too long\n")
            }
            Refusal::AddressLimit | Refusal::ConnectionLimit => {
                (RETRY_LATER, "too many connections\n")
            }
            Refusal::LogDecoderLimit => (RETRY_LATER, "too many logs are being decompressed\n"),
        };
        Response {
            refusal: Some(refusal),
            ..Response::text(refusal.status(), fields, why)
        }
    }

    /// 201, to an upload that was received.
    pub(crate) fn created() -> Response {
        Response::text(201, NOT_STORED, "")
    }

    /// 200, to a deletion.
    pub(crate) fn deleted() -> Response {
        Response::text(200, NOT_STORED, "")
    }

    /// The response to an upload that is not received.
    pub(crate) fn not_received(error: &ReceiveError) -> Response {
        match error.kind {
            ReceiveErrorKind::System => Response::internal_error(),
            kind => {
                let fields = match kind {
                    ReceiveErrorKind::TooMany => RETRY_UPLOAD,
                    _ => NOT_STORED,
                };
                Response::text(kind.status(), fields, format!("{error}\n"))
            }
        }
    }

    /// Notes whether the contents were in a cache.
    pub(crate) fn noting(self, kind: CacheKind, cache: CacheUse) -> Response {
        let cache = Some((kind, cache));
        Response { cache, ..self }
    }

    /// 304, for a client whose copy is current.
    pub(crate) fn not_modified(fields: impl Into<Text>) -> Response {
        Response {
            status: 304,
            length: Some(0),
            ..Response::head(fields, None)
        }
    }

    /// Appends the head: status line, `Date`, the fields of the response, length, connection.
    /// `date` is a header field with its line end.
    pub(crate) fn write_head(
        &self,
        out: &mut Vec<u8>,
        date: &str,
        mode: ResponseMode,
        after_response: AfterResponse,
    ) {
        out.extend_from_slice(status_line(self.status).as_bytes());
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(self.fields.as_str().as_bytes());
        if mode.is_private {
            out.extend_from_slice(b"Cache-Control: private\r\n");
        }
        match self.length {
            // A 304 has no body, and a length would be understood as that of the 200.
            Some(_) if self.status == 304 => {}
            Some(length) => {
                out.extend_from_slice(b"Content-Length: ");
                decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            // HTTP/1.0 has no chunks: the body ends with the connection.
            None if mode.is_http10 || mode.head_only => {}
            None => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        out.extend_from_slice(match (after_response, mode.is_http10) {
            (AfterResponse::KeepAlive, true) => b"Connection: keep-alive\r\n\r\n",
            (AfterResponse::KeepAlive, false) => b"\r\n",
            (AfterResponse::Close | AfterResponse::CloseUnread, _) => b"Connection: close\r\n\r\n",
        });
    }
}

/// The step that follows when the response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterResponse {
    /// The next request is read.
    KeepAlive,
    Close,
    /// The client may still be sending a request body that the server does not read. It is
    /// discarded before the connection is closed.
    CloseUnread,
}

const NOT_STORED: &str = "Content-Type: text/plain\r\nCache-Control: no-store\r\n";
const RETRY_LATER: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nRetry-After: 1\r\n";
/// Uploads are counted by the minute.
const RETRY_UPLOAD: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nRetry-After: 10\r\n";
/// The seconds are those after which [`crate::auth`] allows another attempt.
const RETRY_LOGIN: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nRetry-After: 6\r\n";
const LOGIN: &str = "Content-Type: text/plain\r\nCache-Control: no-store\r\n\
     WWW-Authenticate: Basic realm=\"floe\", charset=\"UTF-8\"\r\n\
     WWW-Authenticate: Bearer realm=\"floe\"\r\n";
const NOT_ALLOWED: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nAllow: GET, HEAD\r\n";

fn status_line(status: u16) -> &'static str {
    match status {
        200 => "HTTP/1.1 200 OK\r\nServer: floe\r\n",
        201 => "HTTP/1.1 201 Created\r\nServer: floe\r\n",
        206 => "HTTP/1.1 206 Partial Content\r\nServer: floe\r\n",
        308 => "HTTP/1.1 308 Permanent Redirect\r\nServer: floe\r\n",
        304 => "HTTP/1.1 304 Not Modified\r\nServer: floe\r\n",
        400 => "HTTP/1.1 400 Bad Request\r\nServer: floe\r\n",
        401 => "HTTP/1.1 401 Unauthorized\r\nServer: floe\r\n",
        403 => "HTTP/1.1 403 Forbidden\r\nServer: floe\r\n",
        404 => "HTTP/1.1 404 Not Found\r\nServer: floe\r\n",
        405 => "HTTP/1.1 405 Method Not Allowed\r\nServer: floe\r\n",
        408 => "HTTP/1.1 408 Request Timeout\r\nServer: floe\r\n",
        409 => "HTTP/1.1 409 Conflict\r\nServer: floe\r\n",
        412 => "HTTP/1.1 412 Precondition Failed\r\nServer: floe\r\n",
        413 => "HTTP/1.1 413 Content Too Large\r\nServer: floe\r\n",
        414 => "HTTP/1.1 414 URI Too Long\r\nServer: floe\r\n",
        415 => "HTTP/1.1 415 Unsupported Media Type\r\nServer: floe\r\n",
        416 => "HTTP/1.1 416 Range Not Satisfiable\r\nServer: floe\r\n",
        429 => "HTTP/1.1 429 Too Many Requests\r\nServer: floe\r\n",
        507 => "HTTP/1.1 507 Insufficient Storage\r\nServer: floe\r\n",
        503 => "HTTP/1.1 503 Service Unavailable\r\nServer: floe\r\n",
        431 => "HTTP/1.1 431 Request Header Fields Too Large\r\nServer: floe\r\n",
        _ => "HTTP/1.1 500 Internal Server Error\r\nServer: floe\r\n",
    }
}

fn decimal(out: &mut Vec<u8>, number: u64) {
    // Writing to a vector cannot fail.
    let _: std::io::Result<()> = write!(out, "{number}");
}

/// Whether `If-None-Match` names an entity tag (RFC 9110, section 13.1.2).
pub(crate) fn etag_matches(if_none_match: Option<&str>, etag: &str) -> bool {
    if_none_match.is_some_and(|list| {
        list.split(',').map(str::trim).any(|candidate| {
            candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == etag
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_head_states_the_framing() {
        let head = |response: &Response, persistence, is_http10| {
            let mut out = Vec::new();
            let mode = ResponseMode {
                is_http10,
                ..ResponseMode::default()
            };
            response.write_head(&mut out, "Date: now\r\n", mode, persistence);
            String::from_utf8(out).unwrap()
        };
        use AfterResponse::{Close, KeepAlive};
        let response = Response::text(200, "A: b\r\n", "four");
        assert_eq!(
            head(&response, KeepAlive, false),
            "HTTP/1.1 200 OK\r\nServer: floe\r\nDate: now\r\nA: b\r\nContent-Length: 4\r\n\r\n"
        );
        assert!(head(&response, KeepAlive, true).ends_with("Connection: keep-alive\r\n\r\n"));
        assert!(head(&response, Close, false).ends_with("Connection: close\r\n\r\n"));
        let endless = Response {
            length: None,
            ..response
        };
        assert!(head(&endless, KeepAlive, false).contains("chunked"));
        assert!(!head(&endless, Close, true).contains("chunked"));
        let not_modified = Response::not_modified("A: b\r\n");
        assert!(!head(&not_modified, KeepAlive, false).contains("Length"));
    }

    #[test]
    fn entity_tags_are_compared_weakly() {
        assert!(etag_matches(Some("\"a\", W/\"b\""), "\"b\""));
        assert!(etag_matches(Some("*"), "\"b\""));
        assert!(!etag_matches(Some("\"a\""), "\"b\""));
        assert!(!etag_matches(None, "\"b\""));
    }
}
