//! The bytes of a peer that are not parsed yet.

use crate::compression::Decompressor;
use crate::error::WireError;

/// A buffer between a reader, which fills it, and a parser, which empties it from the front.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    /// The bytes before this place are parsed.
    begin: usize,
    /// The bytes from this place on are free space.
    end: usize,
    /// The parser needs at least this number of bytes for its next message.
    needed: usize,
    /// The longest message in bytes, if it is shorter than [`MESSAGE_LEN_MAX`].
    message_len_max: Option<usize>,
    /// Where the bytes of the peer arrive, once they are compressed.
    compressed: Option<Decompressor>,
}

impl ReceiveBuffer {
    /// Refuses messages that are longer than this number of bytes.
    pub(crate) fn limit_messages(&mut self, len: usize) {
        self.message_len_max = Some(len);
    }

    /// Takes all bytes that are not parsed, and those that follow, for compressed ones.
    pub(crate) fn decompress(&mut self) -> Result<(), WireError> {
        if self.compressed.is_some() {
            let reason = "it has begun already".into();
            return Err(WireError::Compression { reason });
        }
        let bytes = self.filled();
        self.compressed = Some(Decompressor::new(bytes)?);
        self.begin = self.end;
        Ok(())
    }

    /// Returns free space for bytes of the peer. It is never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        match self.compressed {
            Some(ref mut compressed) => compressed.space(),
            None => self.own_space(),
        }
    }

    fn own_space(&mut self) -> &mut [u8] {
        if self.begin == self.end && self.bytes.len() > KEPT_LEN {
            // A long message must not occupy memory until the connection ends.
            (self.bytes, self.begin, self.end) = (Vec::new(), 0, 0);
        }
        if self.begin > 0 && self.bytes.len() - self.end < READ_LEN {
            self.bytes.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        if self.bytes.len() - self.end < READ_LEN {
            self.bytes.resize(self.end + READ_LEN, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Adds bytes that were written to the space.
    pub(crate) fn fill(&mut self, len: usize) {
        match &mut self.compressed {
            Some(compressed) => compressed.fill(len),
            None => self.end = self.end.saturating_add(len).min(self.bytes.len()),
        }
    }

    /// Decompresses bytes that have arrived, until the parser has enough of them. Returns whether
    /// there were any.
    pub(crate) fn refill(&mut self) -> Result<bool, WireError> {
        let Some(mut compressed) = self.compressed.take() else {
            return Ok(false);
        };
        let before = self.filled().len();
        let mut read = Ok(1);
        while !matches!(read, Ok(0) | Err(_)) && self.filled().len() < self.needed.max(READ_LEN) {
            read = compressed.read(self.own_space());
            self.end += *read.as_ref().unwrap_or(&0);
        }
        self.compressed = Some(compressed);
        read?;
        Ok(self.filled().len() > before)
    }

    /// Whether all bytes that have arrived are parsed.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled().is_empty() && self.compressed.as_ref().is_none_or(Decompressor::is_empty)
    }

    /// Whether the next number has arrived and has this value.
    pub(crate) fn begins_with(&self, number: u64) -> bool {
        self.filled().starts_with(&number.to_le_bytes())
    }

    /// Returns the bytes that are not parsed.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Removes bytes from the front, and returns them.
    pub(crate) fn take(&mut self, len: usize) -> &[u8] {
        let begin = self.begin;
        self.begin = begin.saturating_add(len).min(self.end);
        &self.bytes[begin..self.begin]
    }

    /// Parses a message. Returns `None` if it is not complete.
    pub(crate) fn parse<T>(
        &mut self,
        parse: impl Fn(&mut crate::Input<'_>) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        loop {
            self.refill()?;
            if self.filled().len() < self.needed {
                return Ok(None);
            }
            let message_len_max = self.message_len_max.unwrap_or(MESSAGE_LEN_MAX);
            let mut input = crate::Input::new(self.filled());
            match parse(&mut input) {
                Ok(message) => {
                    let len = input.len_read();
                    self.take(len);
                    self.needed = 0;
                    return Ok(Some(message));
                }
                // A long list is parsed again only after much of the rest has arrived.
                Err(WireError::Incomplete { needed, .. }) if needed <= message_len_max => {
                    self.needed = needed;
                }
                Err(WireError::Incomplete { needed, .. }) => {
                    return Err(WireError::TooLong {
                        what: "a message",
                        len: needed as u64,
                        max: message_len_max as u64,
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The least space for a read, in bytes: that of a pipe, so that one read empties it.
const READ_LEN: usize = 64 * 1024;

/// A buffer of more bytes than this is given back after its messages are parsed.
const KEPT_LEN: usize = 8 * READ_LEN;

/// The longest message, in bytes: a list of a million paths.
const MESSAGE_LEN_MAX: usize = 128 * 1024 * 1024;
