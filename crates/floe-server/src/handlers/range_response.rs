//! Responses of which the client may want a range (RFC 9110, section 14).

use std::convert::Infallible;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::body::Piece;
use crate::deferred::DeferredRequest;
use crate::http::range::{self, Ranges};
use crate::http::response::Response;

/// The current contents of a URL.
pub(super) struct Version<'t> {
    /// The header fields of every response, whether it has all of it or a range.
    pub(super) fields: String,
    /// The header field with the type.
    pub(super) content_type: &'t str,
    pub(super) len: u64,
}

/// Returns the response with all of a version, one range of it, or several ranges as a multipart
/// body. `range` is the field of the request. `piece` makes the part of the body that is one range.
pub(super) fn range_response<E>(
    version: Version<'_>,
    range: Option<&str>,
    mut piece: impl FnMut(Range<u64>) -> Result<Piece, E>,
) -> Result<Response, E> {
    let Version {
        mut fields,
        content_type,
        len,
    } = version;
    let mut length = 0;
    let mut pieces = Vec::new();
    let status = match range::parse(range, len) {
        Ranges::Unsatisfiable => {
            let fields = format!("{UNSATISFIABLE}Content-Range: bytes */{len}\r\n");
            return Ok(Response::text(416, fields, "range not satisfiable\n"));
        }
        Ranges::Whole => {
            length = len;
            fields.push_str(content_type);
            pieces.push(piece(0..len)?);
            200
        }
        Ranges::Parts(parts) => match parts.as_slice() {
            [part] => {
                length = part.end - part.start;
                fields.push_str(content_type);
                fields.push_str(&content_range(part, len));
                pieces.push(piece(part.clone())?);
                206
            }
            parts => {
                fields.push_str(MULTIPART_TYPE);
                for part in parts {
                    let range = content_range(part, len);
                    let head =
                        format!("\r\n--{BOUNDARY}\r\n{content_type}{range}\r\n").into_bytes();
                    length += head.len() as u64 + part.end - part.start;
                    pieces.push(Piece::Bytes(head));
                    pieces.push(piece(part.clone())?);
                }
                let end = format!("\r\n--{BOUNDARY}--\r\n").into_bytes();
                length += end.len() as u64;
                pieces.push(Piece::Bytes(end));
                206
            }
        },
    };
    Ok(Response {
        status,
        ..Response::streamed(fields, Some(length), pieces)
    })
}

/// Returns the response for a version whose bytes are those of a file.
pub(super) fn file_response(
    version: Version<'_>,
    range: Option<&str>,
    file: impl Into<OwnedFd>,
) -> Response {
    let file = Arc::new(file.into());
    let Ok(response) = range_response::<Infallible>(version, range, |range| {
        Ok(Piece::File {
            file: file.clone(),
            offset: range.start,
            end: range.end,
        })
    });
    response
}

/// Returns the field `Range`, unless `If-Range` asks for another version (RFC 9110, section
/// 13.1.5). A date in `If-Range` never matches, since responses have no date of modification.
pub(super) fn applicable_range<'r>(request: &'r DeferredRequest, etag: &str) -> Option<&'r str> {
    let version = request.if_range.as_deref();
    let range = request.range.as_deref();
    range.filter(|_| version.is_none_or(|version| version == etag))
}

fn content_range(part: &Range<u64>, len: u64) -> String {
    format!(
        "Content-Range: bytes {}-{}/{len}\r\n",
        part.start,
        part.end - 1
    )
}

/// Separates the parts of a multipart body. Clients find the parts by their length, so it does no
/// harm if a part contains these characters.
const BOUNDARY: &str = "floe-range-f1oe8ea7";
const MULTIPART_TYPE: &str = "Content-Type: multipart/byteranges; boundary=floe-range-f1oe8ea7\r\n";

const UNSATISFIABLE: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nAccept-Ranges: bytes\r\n";
