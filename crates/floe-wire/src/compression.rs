//! The compression of a connection between two floes: one zstd frame for each direction, without an
//! end.

use std::io::{self, Write};

use zstd::stream::raw::{CParameter, DParameter, Decoder, Operation as _};
use zstd::stream::write::Encoder;

use crate::error::WireError;

/// Compresses the bytes of one direction.
pub type Compressor<W> = Encoder<'static, W>;

/// Returns a writer that compresses into `output`, for the other side that has begun to decompress.
/// The other side can read all bytes before a flush.
///
/// Errors: zstd has no memory.
pub fn compressor<W: Write>(output: W) -> io::Result<Compressor<W>> {
    let mut encoder = Encoder::new(output, LEVEL)?;
    encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG))?;
    Ok(encoder)
}

/// Decompresses the bytes of the other side, as far as they are needed.
pub(crate) struct Decompressor {
    decoder: Decoder<'static>,
    /// The compressed bytes from `begin` to `end` are not read yet.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Whether zstd may have more bytes, without further input.
    has_more: bool,
}

impl Decompressor {
    /// Makes a decompressor. `bytes` have arrived already.
    pub(crate) fn new(bytes: &[u8]) -> Result<Decompressor, WireError> {
        let mut decoder = Decoder::new().map_err(|error| fault(&error))?;
        decoder
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG))
            .map_err(|error| fault(&error))?;
        Ok(Decompressor {
            decoder,
            begin: 0,
            end: bytes.len(),
            bytes: bytes.to_vec(),
            has_more: false,
        })
    }

    /// Returns free space for compressed bytes. It is never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        if self.bytes.len() < self.end + SPACE_LEN {
            self.bytes.resize(self.end + SPACE_LEN, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Adds compressed bytes that were written to the space.
    pub(crate) fn fill(&mut self, len: usize) {
        self.end = self.end.saturating_add(len).min(self.bytes.len());
    }

    /// Whether all bytes that have arrived were passed on.
    pub(crate) fn is_empty(&self) -> bool {
        self.begin == self.end && !self.has_more
    }

    /// Decompresses into `space`, and returns the number of bytes; 0 if more must arrive first.
    pub(crate) fn read(&mut self, space: &mut [u8]) -> Result<usize, WireError> {
        let mut len = 0;
        while len < space.len() && !self.is_empty() {
            let input = &self.bytes[self.begin..self.end];
            let status = self.decoder.run_on_buffers(input, &mut space[len..]);
            let status = status.map_err(|error| fault(&error))?;
            self.begin += status.bytes_read;
            len += status.bytes_written;
            self.has_more = len == space.len();
            if status.bytes_read + status.bytes_written == 0 {
                break;
            }
        }
        Ok(len)
    }
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} compressed bytes", self.end - self.begin)
    }
}

fn fault(error: &io::Error) -> WireError {
    WireError::Compression {
        reason: error.to_string(),
    }
}

/// The fastest level but for the negative ones: it is faster than the cipher of ssh.
const LEVEL: i32 = 1;

/// The binary logarithm of the window in bytes, which each direction of a connection keeps in
/// memory. It is that of the level, and a peer must not demand more.
const WINDOW_LOG: u32 = 19;

/// The least space for compressed bytes.
const SPACE_LEN: usize = 64 * 1024;
