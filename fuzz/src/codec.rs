//! Properties of the decoders of floe-transfer that hold for all bytes, one function per fuzz
//! target.
//!
//! The fuzz targets call these functions with the bytes that libFuzzer finds. The tests of
//! floe-transfer call them with the committed corpus.

use std::io::{BufReader, Read as _};
use std::sync::Arc;

use floe_format::Compression;
use floe_hash::idle_cores::IdleCores;
use floe_transfer::codec::{DecoderBudget, PushDecoder, WINDOW_LEN_MAX, ZstdDecoder};

/// Checks that the contents of a body depend neither on the cores that decompress its frames nor on
/// the pieces in which it arrives.
pub fn check_zstd_frames(data: &[u8]) {
    let alone = decode(data, 0, data.len().max(1));
    for (cores, piece_len) in [(0, 1), (1, 7), (3, data.len().max(1))] {
        match (decode(data, cores, piece_len), &alone) {
            (Ok(contents), Ok(expected)) => assert!(contents == *expected, "{cores} cores"),
            // zstd compares the contents with the declared length only if it has the whole frame.
            (Ok(_), Err(error)) => assert!(LENGTH_ERRORS.contains(&&**error), "{error}"),
            (Err(error), Ok(_)) => assert!(LENGTH_ERRORS.contains(&&*error), "{error}"),
            (Err(_), Err(_)) => {}
        }
        // A decoder of pieces refuses large windows, and a body without a frame.
        match (push(data, piece_len), &alone) {
            (Some(contents), Ok(expected)) => assert!(contents == *expected, "{piece_len} bytes"),
            (Some(_), Err(error)) => assert!(LENGTH_ERRORS.contains(&&**error), "{error}"),
            (None, _) => {}
        }
    }
}

/// Returns the contents of a body that arrives in pieces, unless they are long.
fn push(data: &[u8], piece_len: usize) -> Option<Vec<u8>> {
    let mut decoder = PushDecoder::new(Compression::Zstd).ok()??;
    let mut contents = Vec::new();
    let mut receive = |bytes: &[u8]| {
        contents.extend_from_slice(bytes);
        let is_long = contents.len() as u64 >= CONTENTS_LEN_MAX;
        if is_long { Err(()) } else { Ok(()) }
    };
    for piece in data.chunks(piece_len) {
        decoder.push(piece, &mut receive).ok()?;
    }
    decoder.finish(&mut receive).ok()?;
    Some(contents)
}

fn decode(data: &[u8], cores: usize, piece_len: usize) -> Result<Vec<u8>, String> {
    let budget = DecoderBudget::new(1);
    let body = BufReader::with_capacity(piece_len, data);
    let limits = (WINDOW_LEN_MAX, CONTENTS_LEN_MAX);
    let decoder = ZstdDecoder::new(body, limits, &budget, Arc::new(IdleCores::new(cores)));
    let mut contents = Vec::new();
    let read = decoder.take(CONTENTS_LEN_MAX).read_to_end(&mut contents);
    read.map(|_| contents).map_err(|error| error.to_string())
}

/// A few bytes may be a large file.
const CONTENTS_LEN_MAX: u64 = 4 << 20;

/// The messages of zstd about a frame with other contents than its header declares.
const LENGTH_ERRORS: [&str; 2] = [
    "Destination buffer is too small",
    "Data corruption detected",
];
