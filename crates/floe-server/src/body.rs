//! The bodies of responses, as pieces that are read while they are sent.
//!
//! This module describes a body and reads its parts. `net::send` moves them to the client.

pub(crate) mod budget;
pub(crate) mod nar_range;
pub(crate) mod nar_reader;
pub(crate) mod readahead;
pub(crate) mod text;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use budget::Permit;
use nar_range::NarRange;
use readahead::Readahead;
use text::Text;

/// The pieces of a body that are still to be sent.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) pieces: VecDeque<Piece>,
}

/// A part of a body.
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// A text, of which `sent` bytes are sent.
    Text {
        text: Text,
        sent: usize,
    },
    Nar(NarRange),
    /// The second half of a NAR, which another thread reads meanwhile.
    Readahead(Readahead),
    /// The bytes from `offset` to `end` of a file.
    File {
        file: Arc<OwnedFd>,
        offset: u64,
        end: u64,
    },
    /// Everything that a reader returns, of a length that is not known beforehand.
    Stream(Stream),
}

/// A reader whose bytes are sent until it ends.
pub(crate) struct Stream {
    pub(crate) reader: Box<dyn Read + Send>,
    /// Whether the bytes are sent in the chunked coding. HTTP/1.0 does not have it.
    pub(crate) chunked: bool,
    /// Counts the decoder of a build log until the stream is dropped.
    pub(crate) log_decoder: Option<Permit>,
    /// Counts the encoder of a NAR until the stream is dropped.
    pub(crate) _encoder: Option<Permit>,
}

impl Body {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>) -> Body {
        Body {
            pieces: pieces.into_iter().collect(),
        }
    }

    /// Whether nothing is left to be sent. A consumed readahead has only its permit left.
    pub(crate) fn is_sent(&self) -> bool {
        self.pieces
            .iter()
            .all(|piece| matches!(piece, Piece::Readahead(half) if half.is_consumed()))
    }

    /// Whether the body holds one of the decoders for build logs.
    pub(crate) fn has_log_decoder(&self) -> bool {
        let mut streams = self.pieces.iter();
        streams.any(|piece| matches!(piece, Piece::Stream(stream) if stream.log_decoder.is_some()))
    }

    /// Whether the next piece is not appended to the write buffer, or there is none.
    pub(crate) fn bypasses_buffer(&self, can_send_files: bool) -> bool {
        match self.pieces.front() {
            None | Some(Piece::Readahead(_)) => true,
            Some(Piece::Nar(nar)) => can_send_files && nar.next_is_large(),
            Some(Piece::File { .. }) => can_send_files,
            Some(_) => false,
        }
    }
}

impl Stream {
    /// Appends the next bytes to a buffer. Returns `false` at the end of the stream.
    pub(crate) fn read_chunk(&mut self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_LEN_MAX];
        let read = loop {
            match self.reader.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        let bytes = chunk.get(..read).unwrap_or_default();
        match (self.chunked, read) {
            (false, _) => buffer.extend_from_slice(bytes),
            (true, 0) => buffer.extend_from_slice(b"0\r\n\r\n"),
            (true, _) => {
                buffer.extend_from_slice(format!("{read:x}\r\n").as_bytes());
                buffer.extend_from_slice(bytes);
                buffer.extend_from_slice(b"\r\n");
            }
        }
        Ok(read > 0)
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Piece::Bytes(_) => "Bytes",
            Piece::Text { .. } => "Text",
            Piece::Nar(_) => "Nar",
            Piece::Readahead(_) => "Readahead",
            Piece::File { .. } => "File",
            Piece::Stream(_) => "Stream",
        })
    }
}

/// Files from this size on are sent with `sendfile`. Below, its fixed cost is higher than that of
/// a copy through memory that is in the processor's cache.
pub(crate) const SENDFILE_MIN: u64 = 16 * 1024;

/// How much of a stream, a text or the framing of a NAR is put into the write buffer at once. A
/// thousand clients that read nothing make the server hold a thousand times as much.
pub(crate) const CHUNK_LEN_MAX: usize = 64 * 1024;
