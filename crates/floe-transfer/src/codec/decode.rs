//! Decodes whole bodies, on one thread.

use std::io::{self, BufRead, Read as _};

use floe_format::Compression;

use super::{WINDOW_LEN_MAX, decoder, window_len};

/// The reason why a body was not decoded to its end.
#[derive(Debug)]
pub enum DecodeError<E> {
    /// floe has no decoder for the compression.
    Unsupported,
    /// The body cannot be read or decoded.
    Body(io::Error),
    /// The receiver of the bytes does not take more.
    Receiver(E),
}

/// Decodes a body to its end, and passes the bytes on in chunks.
///
/// Errors: [`DecodeError`].
pub fn decode<E>(
    compression: Compression,
    mut body: impl BufRead,
    receive: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), DecodeError<E>> {
    let head = body.fill_buf().map_err(DecodeError::Body)?;
    let window = window_len(compression, head).unwrap_or(WINDOW_LEN_MAX);
    let decoder = decoder(compression, body, window).map_err(DecodeError::Body)?;
    let mut decoder = decoder.ok_or(DecodeError::Unsupported)?;
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        match decoder.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => receive(&chunk[..len]).map_err(DecodeError::Receiver)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(DecodeError::Body(error)),
        }
    }
}

const CHUNK_LEN: usize = 128 * 1024;
