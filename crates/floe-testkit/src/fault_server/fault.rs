//! The faults that the server injects.

use std::time::Duration;

/// The behaviour of the server instead of serving the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Respond with this status and no file.
    Status(u16),
    /// Wait, then respond with this status.
    DelayedStatus(u16, Duration),
    /// Respond with this status and this `Retry-After` value.
    RetryAfter(u16, String),
    /// Send another `ETag` than before, as if the file had changed.
    ChangedEtag,
    /// Close the connection without a response.
    Reset,
    /// Close the connection after this many bytes of the response head.
    TruncatedHead(usize),
    /// Send these bytes instead of the file.
    OtherBody(Vec<u8>),
    /// Wait, then serve the file.
    Delayed(Duration),
    /// Announce the whole body, send this many bytes of it and close the connection.
    Truncated(usize),
    /// Announce and send only this many bytes of the body.
    ShortBody(usize),
    /// Respond to a range request with at most this many bytes.
    PartialRange(usize),
    /// Respond to a range request with the whole file.
    IgnoredRange,
    /// Respond to a range request with other bytes than those of the file.
    OtherRange,
    /// Send this many bytes without `Content-Length` and close the connection, which ends such a
    /// body.
    TruncatedWithoutLength(usize),
    /// Send one chunk of this many bytes, and close the connection without the last chunk.
    TruncatedChunked(usize),
    /// Send these bytes, the file compressed by gzip, with `Content-Encoding: gzip`.
    Gzip(Vec<u8>),
    /// Do the same, but send only this many bytes and close the connection.
    TruncatedGzip(Vec<u8>, usize),
    /// Append these bytes to the body.
    ExtraBytes(Vec<u8>),
    /// Redirect the client to this URL.
    Redirect(String),
    /// Announce the whole body, send this many bytes, then nothing until the client disconnects.
    Stalled(usize),
    /// Send these bytes again and again, until the client disconnects or after a gibibyte.
    Endless(Vec<u8>),
    /// Send one byte of the body after each pause.
    Dripping(Duration),
    /// Delay the last bytes of the body, this many, so that they arrive separately.
    DelayedTail(usize),
}
