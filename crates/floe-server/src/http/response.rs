//! What an answer is, and its head as bytes.

use std::io::Write as _;
use std::sync::Arc;

use crate::body::Body;
use crate::body::text::Text;

/// An answer to one request.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header fields, each with its line end, besides those that every answer has.
    pub(crate) fields: Text,
    /// How long the body is, also where it is not sent; `None` sends it in chunks.
    pub(crate) length: Option<u64>,
    pub(crate) content: Content,
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// Bytes that are there.
    Text(Text),
    /// The NAR of a small path.
    Bytes(Arc<[u8]>),
    /// What has to be read piece by piece, by a worker.
    Body(Box<Body>),
}

/// Whether a head says how a body of unknown length framing: not where none follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Chunked,
    None,
}

impl Response {
    /// An answer whose body is a text.
    pub(crate) fn text(status: u16, fields: impl Into<Text>, body: impl Into<Text>) -> Response {
        let body = body.into();
        Response {
            status,
            fields: fields.into(),
            length: Some(body.as_str().len() as u64),
            content: Content::Text(body),
        }
    }

    /// 404. Never stored, since the path may come at any time.
    pub(crate) fn not_found(why: &'static str) -> Response {
        Response::text(404, NOT_STORED, why)
    }

    /// An error of the server's. What went wrong is told to the operator, not to the client.
    pub(crate) fn internal_error() -> Response {
        Response::text(500, NOT_STORED, "internal error\n")
    }

    /// A request that asks for nothing that can be done.
    pub(crate) fn client_error(status: u16) -> Response {
        match status {
            405 => Response::text(405, NOT_ALLOWED, "method not allowed\n"),
            414 => Response::text(414, NOT_STORED, "request line too long\n"),
            431 => Response::text(431, NOT_STORED, "request header too long\n"),
            _ => Response::text(400, NOT_STORED, "bad request\n"),
        }
    }

    /// 304, for a client that has it already.
    pub(crate) fn not_modified(fields: impl Into<Text>) -> Response {
        Response {
            status: 304,
            fields: fields.into(),
            length: Some(0),
            content: Content::Text(Text::Static("")),
        }
    }

    /// Writes the head: status line, `Date`, the answer's own fields, length, connection.
    pub(crate) fn write_head(
        &self,
        out: &mut Vec<u8>,
        date: &str,
        keep_alive: bool,
        is_http10: bool,
        framing: Framing,
    ) {
        out.extend_from_slice(status_line(self.status).as_bytes());
        out.extend_from_slice(date.as_bytes());
        out.extend_from_slice(self.fields.as_str().as_bytes());
        match self.length {
            // A 304 has no body, and a length would be that of the 200.
            Some(_) if self.status == 304 => {}
            Some(length) => {
                out.extend_from_slice(b"Content-Length: ");
                decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            // A client of HTTP/1.0 knows no chunks: for it the end of the connection is the end.
            None if is_http10 || framing == Framing::None => {}
            None => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        match (keep_alive, is_http10) {
            (false, _) => out.extend_from_slice(b"Connection: close\r\n\r\n"),
            (true, true) => out.extend_from_slice(b"Connection: keep-alive\r\n\r\n"),
            (true, false) => out.extend_from_slice(b"\r\n"),
        }
    }
}

const NOT_STORED: &str = "Content-Type: text/plain\r\nCache-Control: no-store\r\n";
const NOT_ALLOWED: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nAllow: GET, HEAD\r\n";

fn status_line(status: u16) -> &'static str {
    match status {
        200 => "HTTP/1.1 200 OK\r\nServer: floe\r\n",
        206 => "HTTP/1.1 206 Partial Content\r\nServer: floe\r\n",
        302 => "HTTP/1.1 302 Found\r\nServer: floe\r\n",
        304 => "HTTP/1.1 304 Not Modified\r\nServer: floe\r\n",
        400 => "HTTP/1.1 400 Bad Request\r\nServer: floe\r\n",
        404 => "HTTP/1.1 404 Not Found\r\nServer: floe\r\n",
        405 => "HTTP/1.1 405 Method Not Allowed\r\nServer: floe\r\n",
        414 => "HTTP/1.1 414 URI Too Long\r\nServer: floe\r\n",
        416 => "HTTP/1.1 416 Range Not Satisfiable\r\nServer: floe\r\n",
        431 => "HTTP/1.1 431 Request Header Fields Too Large\r\nServer: floe\r\n",
        503 => "HTTP/1.1 503 Service Unavailable\r\nServer: floe\r\n",
        _ => "HTTP/1.1 500 Internal Server Error\r\nServer: floe\r\n",
    }
}

fn decimal(out: &mut Vec<u8>, number: u64) {
    // A vector takes all that is written to it.
    let _: std::io::Result<()> = write!(out, "{number}");
}

/// Whether a client has what an entity tag names (RFC 9110, section 13.1.2).
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
        let head = |answer: &Response, keep_alive, is_http10| {
            let mut out = Vec::new();
            answer.write_head(
                &mut out,
                "Date: now\r\n",
                keep_alive,
                is_http10,
                Framing::Chunked,
            );
            String::from_utf8(out).unwrap()
        };
        let answer = Response::text(200, "A: b\r\n", "four");
        assert_eq!(
            head(&answer, true, false),
            "HTTP/1.1 200 OK\r\nServer: floe\r\nDate: now\r\nA: b\r\nContent-Length: 4\r\n\r\n"
        );
        assert!(head(&answer, true, true).ends_with("Connection: keep-alive\r\n\r\n"));
        assert!(head(&answer, false, false).ends_with("Connection: close\r\n\r\n"));
        let endless = Response {
            length: None,
            ..answer
        };
        assert!(head(&endless, true, false).contains("chunked"));
        assert!(!head(&endless, false, true).contains("chunked"));
        assert!(!head(&Response::not_modified("A: b\r\n"), true, false).contains("Length"));
    }

    #[test]
    fn entity_tags_are_compared_weakly() {
        assert!(etag_matches(Some("\"a\", W/\"b\""), "\"b\""));
        assert!(etag_matches(Some("*"), "\"b\""));
        assert!(!etag_matches(Some("\"a\""), "\"b\""));
        assert!(!etag_matches(None, "\"b\""));
    }
}
