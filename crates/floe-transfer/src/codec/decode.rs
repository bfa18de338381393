//! Decodes whole bodies, on one thread.

use std::io::{self, BufRead, Read as _};

use floe_format::Compression;

use super::budget::{BudgetPermit, DecoderBudget};
use super::{CHUNK_LEN, WINDOW_LEN_MAX, XzChecks, decoder, window_len};

/// The reason why a body was not decoded to its end.
#[derive(Debug)]
pub enum DecodeError<E> {
    /// floe has no decoder for the compression.
    Unsupported,
    /// The system cannot read the body.
    Read(io::Error),
    /// The body cannot be decoded.
    Damaged(io::Error),
    /// The receiver of the bytes does not take more.
    Receiver(E),
}

/// Waits until a budget has room for the window that a decoder of a body needs. A NAR of `nar_size`
/// bytes fills no more of it.
///
/// Errors: the system cannot read the body.
pub fn acquire_window<'b>(
    compression: Compression,
    body: &mut impl BufRead,
    (nar_size, budget): (u64, &'b DecoderBudget),
) -> io::Result<BudgetPermit<'b>> {
    let window = window_len(compression, body.fill_buf()?).unwrap_or(WINDOW_LEN_MAX);
    Ok(budget.acquire(window, nar_size))
}

/// Decodes a body to its end, and passes the bytes on in chunks. Compares the checks of xz.
///
/// Errors: [`DecodeError`].
pub fn decode<E>(
    compression: Compression,
    mut body: impl BufRead,
    receive: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), DecodeError<E>> {
    let head = body.fill_buf().map_err(of_body)?;
    let window = window_len(compression, head).unwrap_or(WINDOW_LEN_MAX);
    let decoder = decoder(compression, body, window, XzChecks::Compare).map_err(of_body)?;
    let mut decoder = decoder.ok_or(DecodeError::Unsupported)?;
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        match decoder.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => receive(&chunk[..len]).map_err(DecodeError::Receiver)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(of_body(error)),
        }
    }
}

/// Decoders pass on the errors of the system, and make errors of their own.
fn of_body<E>(error: io::Error) -> DecodeError<E> {
    match error.raw_os_error() {
        Some(_) => DecodeError::Read(error),
        None => DecodeError::Damaged(error),
    }
}
