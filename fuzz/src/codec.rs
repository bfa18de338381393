//! Properties of the decoders of floe-transfer that hold for all bytes, one function per fuzz
//! target.
//!
//! The fuzz targets call these functions with the bytes that libFuzzer finds. The tests of
//! floe-transfer call them with the committed corpus.

use std::io::{BufReader, Read as _};
use std::sync::Arc;

use floe_hash::idle_cores::IdleCores;
use floe_transfer::codec::{DecoderBudget, WINDOW_LEN_MAX, ZstdDecoder};

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
    }
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
