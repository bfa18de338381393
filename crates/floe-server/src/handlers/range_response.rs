//! Answers of which a range may be wanted (RFC 9110, section 14).

use std::ops::Range;

use crate::body::{Body, Piece};
use crate::http::range::Ranges;
use crate::http::response::{Content, Response};

/// All of it, a range of it, or several as a multipart body. `fields` are those of any of them,
/// `kind` the line of the type; `piece` makes the part of a body that is one range of the whole.
pub(crate) fn range_response<E>(
    mut fields: String,
    kind: &str,
    len: u64,
    ranges: Ranges,
    piece: impl Fn(Range<u64>) -> Result<Piece, E>,
) -> Result<Response, E> {
    let mut length = 0;
    let mut pieces = Vec::new();
    let status = match ranges {
        Ranges::Unsatisfiable => {
            let fields = format!("{UNSATISFIABLE}Content-Range: bytes */{len}\r\n");
            return Ok(Response::text(416, fields, "range not satisfiable\n"));
        }
        Ranges::Whole => {
            length = len;
            fields.push_str(kind);
            pieces.push(piece(0..len)?);
            200
        }
        Ranges::Parts(parts) => match parts.as_slice() {
            [part] => {
                length = part.end - part.start;
                fields.push_str(kind);
                fields.push_str(&content_range(part, len));
                pieces.push(piece(part.clone())?);
                206
            }
            parts => {
                fields.push_str(MULTIPART_TYPE);
                for part in parts {
                    let range = content_range(part, len);
                    let head = format!("\r\n--{BOUNDARY}\r\n{kind}{range}\r\n").into_bytes();
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
        fields: fields.into(),
        length: Some(length),
        content: Content::Body(Box::new(Body::of(pieces))),
    })
}

/// The ranges that count: those of just this version (RFC 9110, section 13.1.5). There are no
/// dates here, so a date is never the same version.
pub(crate) fn applicable_range<'f>(
    range: Option<&'f str>,
    if_range: Option<&str>,
    etag: &str,
) -> Option<&'f str> {
    range.filter(|_| if_range.is_none_or(|version| version == etag))
}

fn content_range(part: &Range<u64>, len: u64) -> String {
    format!(
        "Content-Range: bytes {}-{}/{len}\r\n",
        part.start,
        part.end - 1
    )
}

/// What stands between the parts of a multipart body. That it occurs in one of them does no harm:
/// each says its length.
const BOUNDARY: &str = "floe-range-f1oe8ea7";
const MULTIPART_TYPE: &str = "Content-Type: multipart/byteranges; boundary=floe-range-f1oe8ea7\r\n";

const UNSATISFIABLE: &str =
    "Content-Type: text/plain\r\nCache-Control: no-store\r\nAccept-Ranges: bytes\r\n";
